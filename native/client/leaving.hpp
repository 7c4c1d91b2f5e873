// Leaving: when to hang up on a server that has said that it ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.hpp"

namespace ucxstore {

// Requests are not sent any more to a server that ends, but for those that are being begun as it
// says so. So the link stays until it has had nothing to do for a moment.
class Leaving {
  public:
    static constexpr std::chrono::milliseconds kMoment{50};

    // Any thread.
    bool begun() const { return begun_.load(std::memory_order_relaxed); }

    // What follows is for the link's thread.
    void begin() { begun_ = true; }
    // When to hang up, by what the link has to do now; TimePoint::max() while there is something,
    // or the server stays.
    TimePoint due(bool idle, TimePoint now) {
        if (!begun() || !idle) {
            since_ = TimePoint::max();
            return TimePoint::max();
        }
        since_ = std::min(since_, now);
        return since_ + kMoment;
    }

  private:
    std::atomic<bool> begun_ = false;
    TimePoint since_ = TimePoint::max();  // idle
};

}  // namespace ucxstore

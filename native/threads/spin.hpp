// Looking for a moment before a thread sleeps.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.hpp"

namespace ucxstore::threads {

// To be woken takes some 20 us on another processor, and so does waking: as long as a small request
// and its answer. A thread that has just had something to do may have more within a moment, and
// looks for it; others have the processor meanwhile, if they want it. Where that is in vain, as
// where more threads run than there are processors, it is done ever less often.
class Spin {
  public:
    // Asks `ready` for a moment, until it says so; returns whether it has.
    template <typename Ready>
    bool until(const Ready& ready) {
        if (skip_ > 0) {
            --skip_;
            return false;
        }
        const base::TimePoint end = base::Clock::now() + kMoment;
        bool is_ready = false;
        bool in_time = true;
        while (!(is_ready = ready()) && in_time) {
            sched_yield();
            in_time = base::Clock::now() < end;
        }
        misses_ = is_ready && in_time ? 0 : std::min(misses_ + 1, kMostMisses);
        skip_ = (1u << misses_) - 1;
        return is_ready;
    }

  private:
    static constexpr std::chrono::microseconds kMoment{50};
    static constexpr std::uint32_t kMostMisses = 8;

    std::uint32_t misses_ = 0;  // in a row
    std::uint32_t skip_ = 0;    // so many times it is not done
};

}  // namespace ucxstore::threads

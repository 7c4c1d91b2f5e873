// The operations of a connection that are not complete, and how they end. No I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/operation.hpp"

namespace ucxstore {

// An operation is registered while replies to it are taken. Once it has ended, it is complete as
// soon as UCX has let go of its memory. On the progress thread alone.
class InFlight {
  public:
    using Pointer = std::shared_ptr<Operation>;

    // The operations that are due, and when the next one may be.
    struct Due {
        std::vector<Pointer> operations;
        TimePoint next = TimePoint::max();
    };

    bool empty() const { return all_.empty(); }
    std::size_t registered() const { return registered_; }
    // nullptr where there is none, or it has ended.
    Pointer find(std::uint64_t id) const;

    void add(const Pointer& operation);
    // Some of its bytes have come or gone, or the server has said that it works on it.
    void moved(Operation& operation);
    // Takes no more replies to it. Needs no memory.
    void end(const Pointer& operation);
    // Completes it if it has ended, and UCX has now let go of all of its memory.
    void released(const Pointer& operation);
    // Completes it as leaked, unless UCX has let go of its memory meanwhile.
    void leak(const Pointer& operation, std::string_view peer, std::string_view why);

    // Calls `end` with each that is registered. That may end() this one, and no others.
    template <typename End>
    void for_each(End end) {
        for (auto at = all_.begin(); at != all_.end();) {
            const Pointer operation = at++->second.operation;
            if (operation->registered) {
                end(operation);
            }
        }
    }
    // Those that are registered, and whose deadline has passed. What has not begun to be sent waits
    // for others: its time runs from when any of them moved last.
    Due late(TimePoint now) const;
    // Those that ended this long ago, and whose memory UCX still has hold of.
    Due unreleased(TimePoint now, Clock::duration time) const;
    // Starts that time anew.
    void wait_anew(TimePoint now);

  private:
    struct One {
        Pointer operation;
        TimePoint ended = TimePoint::max();
    };

    std::unordered_map<std::uint64_t, One> all_;  // by id
    std::size_t registered_ = 0;                  // of them
    TimePoint last_moved_ = TimePoint::min();
};

}  // namespace ucxstore

// The operations of a connection that are not complete, and how they end. No I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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

    bool empty() const { return registered_.empty() && releasing_.empty(); }
    std::size_t registered() const { return registered_.size(); }
    // nullptr where there is none, or it has ended.
    Pointer find(std::uint64_t id) const;

    void add(const Pointer& operation);
    // Takes no more replies to it.
    void end(const Pointer& operation);
    // Completes it if it has ended, and UCX has now let go of all of its memory.
    void released(const Pointer& operation);
    // Completes it as leaked, unless UCX has let go of its memory meanwhile.
    void leak(const Pointer& operation, const std::string& message);

    // All that are registered.
    std::vector<Pointer> all() const;
    // Those that are registered, and whose deadline has passed.
    Due late(TimePoint now) const;
    // Those that ended this long ago, and whose memory UCX still has hold of.
    Due unreleased(TimePoint now, Clock::duration time) const;
    // Starts that time anew.
    void wait_anew(TimePoint now);

  private:
    struct Releasing {
        Pointer operation;
        TimePoint since;
    };

    std::unordered_map<std::uint64_t, Pointer> registered_;
    std::unordered_map<std::uint64_t, Releasing> releasing_;
};

}  // namespace ucxstore

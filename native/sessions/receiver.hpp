// How a session receives segments of values whose bytes are not in their message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/copier.hpp"

namespace ucxstore::sessions {

// A parcel is such bytes: what that is, a derived class knows. Each is received or dropped, once.
class Receiver {
  public:
    using Parcel = void*;

    // Where the bytes of a parcel go.
    class Sink {
      public:
        virtual ~Sink() = default;
        // The memory for all of them; nullptr where it has none, and they go through take().
        virtual std::byte* memory() = 0;
        // Copies bytes of it that begin at `offset`.
        virtual void take(std::uint64_t offset, std::span<const std::byte> bytes) noexcept = 0;
        // Nothing is written any more: all has come, or it was broken off. Called once.
        virtual void done(bool arrived) noexcept = 0;
    };

    virtual ~Receiver() = default;
    // Receives all of it, and tells the sink; that may be inside this call. Throws, without telling
    // it, where it cannot begin.
    virtual void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                         memory::Write write) = 0;
    virtual void drop(Parcel parcel) = 0;
};

}  // namespace ucxstore::sessions

// How a session receives segments of values whose bytes are not in their message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/copier.hpp"

namespace ucxstore {

// A parcel is such bytes: what that is, a derived class knows. Each is received or dropped, once.
class Receiver {
  public:
    using Parcel = void*;

    virtual ~Receiver() = default;
    // Receives all of it into the target, and calls `done` once nothing is written there any more,
    // with whether all has come; that may be inside this call. Throws, without that call, where it
    // cannot begin.
    virtual void receive(Parcel parcel, std::byte* target, std::uint64_t length, Write write,
                         std::function<void(bool)> done) = 0;
    virtual void drop(Parcel parcel) = 0;
};

}  // namespace ucxstore

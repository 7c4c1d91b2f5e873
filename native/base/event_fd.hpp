// An eventfd: a descriptor that wakes the thread that waits for it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/handle.hpp"
#include "base/status.hpp"

namespace ucxstore::base {

class EventFd {
  public:
    // Throws Error(resource) where no descriptor is left.
    EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        if (!fd_) {
            throw_errno("creating an event descriptor", ErrorKind::resource);
        }
    }

    int get() const { return fd_.get(); }
    // Makes it readable. Any thread.
    void set() const {
        const std::uint64_t one = 1;
        // This fails only where the counter is full, and then it is readable.
        static_cast<void>(!::write(fd_.get(), &one, sizeof(one)));
    }
    // Makes it unreadable until the next set().
    void clear() const {
        std::uint64_t count = 0;
        static_cast<void>(!::read(fd_.get(), &count, sizeof(count)));
    }

  private:
    const Fd fd_;
};

}  // namespace ucxstore::base

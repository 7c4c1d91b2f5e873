// A pointer that threads exchange for another one while others use what it was.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.hpp"

namespace ucxstore::local_client {

// Called from any thread. What std::atomic<std::shared_ptr> would be: that of GCC 12 lets go of its
// lock too early as it loads, which ThreadSanitizer reports.
template <typename T>
class Slot {
  public:
    using Pointer = std::shared_ptr<T>;
    explicit Slot(Pointer first = nullptr) : pointer_(std::move(first)) {}

    Pointer load() const {
        const base::Lock lock(mutex_);
        return pointer_;
    }
    // What was there before goes after the lock has.
    void store(Pointer pointer) {
        const base::Lock lock(mutex_);
        pointer_.swap(pointer);
    }

  private:
    mutable base::Mutex mutex_;
    Pointer pointer_ GUARDED_BY(mutex_);
};

}  // namespace ucxstore::local_client

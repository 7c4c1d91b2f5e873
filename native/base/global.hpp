// What a process has one of.
#pragma once

#include <atomic>

#include "base/mutex.hpp"
#include "base/steps.hpp"

namespace ucxstore::base {

// Made when it is first wanted, and never destroyed. Unlike a static of a function, it may be
// wanted by a child that was forked while a thread of its parent made it: the child makes its own.
// To be declared constinit, outside of functions.
template <typename T>
class Global {
  public:
    constexpr Global() noexcept = default;
    Global(const Global&) = delete;
    Global& operator=(const Global&) = delete;

    // `make` returns a new T; it is called again the next time if it throws, or returns nullptr.
    template <typename Make>
    T* get(const Make& make) {
        T* const found = made_.load(std::memory_order_acquire);
        return found != nullptr ? found : make_first(make);
    }

  private:
    template <typename Make>
    [[gnu::noinline]] T* make_first(const Make& make) {
        const Lock lock(mutex_);
        T* found = made_.load(std::memory_order_acquire);
        if (found == nullptr) {
            found = make();
            step();
            made_.store(found, std::memory_order_release);
            step();
        }
        return found;
    }

    std::atomic<T*> made_ = nullptr;
    Mutex mutex_;
};

}  // namespace ucxstore::base

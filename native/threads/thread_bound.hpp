// A check that only one thread uses an object. Release builds have it, too.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace ucxstore::threads {

// To be a member of an object that only one thread may use. check() costs a load and a comparison.
// On another thread it ends the process: two threads would change the same memory at once.
class ThreadBound {
  public:
    // Bound to the thread that makes it.
    ThreadBound() : thread_(std::this_thread::get_id()) {}
    // Bound to none until bind(): for an object that one thread makes and another one uses.
    struct Later {};
    explicit ThreadBound(Later) {}

    void bind() { thread_ = std::this_thread::get_id(); }

    void check(const char* what) const {
        const std::thread::id bound = thread_.load(std::memory_order_relaxed);
        if (bound != std::this_thread::get_id() && bound != std::thread::id()) [[unlikely]] {
            std::fprintf(stderr, "ucxstore: %s was called on a thread that it is not bound to\n",
                         what);
            std::abort();
        }
    }

  private:
    std::atomic<std::thread::id> thread_;
};

}  // namespace ucxstore::threads

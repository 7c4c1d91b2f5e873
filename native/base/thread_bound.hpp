// Which thread may use an object: checked where memory is at stake, in release builds too.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace ucxstore {

// A member of whatever only one thread may use. check() costs a load and a comparison; where
// another thread calls it the process ends, as what would follow is memory that two threads change
// at once.
class ThreadBound {
  public:
    // Bound to the thread that makes it.
    ThreadBound() : thread_(std::this_thread::get_id()) {}
    // To none, until bind(): for an object that one thread makes and another one uses.
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

}  // namespace ucxstore

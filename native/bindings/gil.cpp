#include "bindings/gil.hpp"

#include <unistd.h>

namespace ucxstore::bindings {

namespace {

// Sleeps for good where a thread is unwound through it. A destructor, since pthread_exit unwinds
// without an exception that every C++ library has a name for (libc++ has none).
class SleepIfUnwound {
  public:
    SleepIfUnwound() = default;
    SleepIfUnwound(const SleepIfUnwound&) = delete;
    SleepIfUnwound& operator=(const SleepIfUnwound&) = delete;
    ~SleepIfUnwound() {
        while (!returned_) {
            pause();
        }
    }
    void returned() { returned_ = true; }

  private:
    bool returned_ = false;
};

// A function of its own, which may be unwound: where nothing may be thrown, as in a destructor,
// libc++ terminates before it runs anything.
[[gnu::noinline]] void restore(PyThreadState* state) {
    SleepIfUnwound guard;
    PyEval_RestoreThread(state);
    guard.returned();
}

}  // namespace

WithoutGil::~WithoutGil() { restore(state_); }

}  // namespace ucxstore::bindings

#include "bindings/gil.hpp"

#include <unistd.h>

#include <exception>

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

// Not nanobind's, whose constructor may not be unwound.
class Gil {
  public:
    Gil() : state_(PyGILState_Ensure()) {}
    Gil(const Gil&) = delete;
    Gil& operator=(const Gil&) = delete;
    ~Gil() { PyGILState_Release(state_); }

  private:
    PyGILState_STATE state_;
};

}  // namespace

WithoutGil::~WithoutGil() { restore(state_); }

void with_gil(const std::function<void()>& call) {
    SleepIfUnwound waits;
    const Gil gil;
    SleepIfUnwound runs;  // goes before `gil`, which it no longer has when it is unwound
    try {
        call();
    } catch (const std::exception&) {
        runs.returned();
        waits.returned();
        throw;
    }
    runs.returned();
    waits.returned();
}

}  // namespace ucxstore::bindings

// Release the GIL for a scope, and take it for a call. The core's threads do without it: what they
// share with Python is made by std::make_shared and has std::enable_shared_from_this. Else nanobind
// would take the GIL on the thread that lets go last.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

namespace ucxstore::bindings {

// Releases the GIL for as long as it lives.
//
// Not nanobind's guard: up to Python 3.13, whoever asks for the GIL of an interpreter that is
// exiting is ended by pthread_exit, whose unwinding may not leave a destructor: std::terminate, and
// a daemon thread that waited for a read would abort the process. Such a thread sleeps here for
// good instead, as Python 3.14 has it (python/cpython 87135).
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil();

  private:
    PyThreadState* state_;
};

// Calls `call` with the GIL, on any thread. If the interpreter exits meanwhile, the thread sleeps
// for good, as above. Throws what `call` throws.
void with_gil(const std::function<void()>& call);

}  // namespace ucxstore::bindings

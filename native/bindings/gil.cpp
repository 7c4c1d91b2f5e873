#include "bindings/gil.hpp"

#include <unistd.h>

namespace ucxstore::py {

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

}  // namespace

WithoutGil::~WithoutGil() {
    SleepIfUnwound guard;
    PyEval_RestoreThread(state_);
    guard.returned();
}

}  // namespace ucxstore::py

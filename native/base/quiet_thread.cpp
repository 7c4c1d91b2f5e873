#include "base/quiet_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace ucxstore {
namespace {

class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

}  // namespace

std::thread start_quiet_thread(const std::string& name, std::function<void()> run) {
    const SignalsBlocked blocked;  // the thread inherits that
    return std::thread([name, run = std::move(run)] {
        pthread_setname_np(pthread_self(), name.c_str());
        run();
    });
}

}  // namespace ucxstore

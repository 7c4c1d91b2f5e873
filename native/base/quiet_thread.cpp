#include "base/quiet_thread.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/status.hpp"

namespace ucxstore {
namespace {

constexpr int kNicer = 10;

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

std::thread start_quiet_thread(const std::string& name, std::function<void()> run,
                               Priority priority) {
    const SignalsBlocked blocked;  // the thread inherits that
    try {
        return std::thread([name, run = std::move(run), priority] {
            pthread_setname_np(pthread_self(), name.c_str());
            if (priority == Priority::low) {
                static_cast<void>(nice(kNicer));  // this thread alone, on Linux
            }
            run();
        });
    } catch (const std::system_error& error) {
        throw Error(ErrorKind::resource, "starting the thread " + name + ": " + error.what() +
                                             " (ulimit -u, or what a control group allows)");
    }
}

}  // namespace ucxstore

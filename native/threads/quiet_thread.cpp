#include "threads/quiet_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::threads {
namespace {

constexpr int kNicer = 10;

// The shortest that there is.
constexpr std::uint64_t kTurnNs = 100'000;

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

// As the kernel has it: not every C library declares it.
struct SchedulingAttributes {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t niceness;
    std::uint32_t priority;
    std::uint64_t runtime;
    std::uint64_t deadline;
    std::uint64_t period;
};

// Where this is not allowed, or the kernel knows no such thing, all stays as it is.
void ask_for_short_turns() {
    SchedulingAttributes attributes{};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 &&
        attributes.policy == SCHED_OTHER) {
        attributes.runtime = kTurnNs;
        static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
    }
}

}  // namespace

std::thread start_quiet_thread(const std::string& name, std::function<void()> run,
                               Priority priority) {
    const SignalsBlocked blocked;  // the thread inherits that
    try {
        return std::thread([name, run = std::move(run), priority] {
            pthread_setname_np(pthread_self(), name.c_str());
            if (priority == Priority::low) {
                static_cast<void>(nice(kNicer));  // this thread alone, on Linux
            } else if (priority == Priority::prompt) {
                ask_for_short_turns();
            }
            run();
        });
    } catch (const std::system_error& error) {
        throw base::Error(base::ErrorKind::resource,
                          "starting the thread " + name + ": " + error.what() +
                              " (ulimit -u, or what a control group allows)");
    }
}

}  // namespace ucxstore::threads

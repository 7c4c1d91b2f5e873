#include "base/fork.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ucxstore {
namespace {

// Long enough for a fork, were it not to wait; much shorter than a fork waits at the most.
void stay_a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

int exit_status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkTest, FindsNobodyInUcx) {
    std::atomic<bool> in_ucx = false;
    std::atomic<bool> done = false;
    std::thread busy([&] {
        const InUcx inside;
        while (!done) {
            in_ucx = true;
            stay_a_while();
            in_ucx = false;
            let_fork();
        }
    });
    for (int i = 0; i < 5; ++i) {
        while (!in_ucx) {
            sched_yield();
        }
        const pid_t child = fork();
        if (child == 0) {
            _exit(in_ucx ? 1 : 0);
        }
        EXPECT_EQ(exit_status_of(child), 0);
    }
    done = true;
    busy.join();
}

TEST(ForkTest, WaitsForNobodyWhoSleeps) {
    std::atomic<bool> asleep = false;
    std::atomic<bool> done = false;
    std::thread sleeping([&] {
        const InUcx inside;
        const OutOfUcx outside;
        asleep = true;
        done.wait(false);
    });
    while (!asleep) {
        sched_yield();
    }
    const pid_t child = fork();
    if (child == 0) {
        const InUcx mine;  // the parent's count is not ours
        _exit(0);
    }
    EXPECT_EQ(exit_status_of(child), 0);
    done = true;
    done.notify_one();
    sleeping.join();
}

TEST(ForkTest, OfAThreadThatIsInUcxItself) {
    const InUcx inside;
    const InUcx nested;
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    EXPECT_EQ(exit_status_of(child), 0);
}

}  // namespace
}  // namespace ucxstore

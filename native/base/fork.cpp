#include "base/fork.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/handle.hpp"
#include "base/log.hpp"

namespace ucxstore {
namespace {

std::set<int> epoll_descriptors() {
    std::set<int> found;
    std::error_code failure;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failure)) {
        const auto target = std::filesystem::read_symlink(entry.path(), failure);
        if (!failure && target == "anon_inode:[eventpoll]") {
            found.insert(std::stoi(entry.path().filename().string()));
        }
    }
    return found;
}

std::atomic<bool> seen = false;
std::vector<int> of_ucx;  // epoll instances of UCX's accepting thread

std::atomic<pid_t> started_in = 0;

// Forks, and threads inside UCX: each side first counts itself, and then looks at the other count.
std::atomic<int> forks = 0;
std::atomic<int> inside = 0;
thread_local int depth = 0;

// A round of progress takes milliseconds. What takes longer must not keep a fork waiting for ever.
constexpr std::chrono::seconds kForkWaits{1};

void enter() {
    inside.fetch_add(1);
    while (const int waiting = forks.load()) {
        inside.fetch_sub(1);
        forks.wait(waiting);
        inside.fetch_add(1);
    }
}

void leave() { inside.fetch_sub(1); }

void before_fork() {
    forks.fetch_add(1);
    const auto deadline = std::chrono::steady_clock::now() + kForkWaits;
    while (inside.load() > (depth > 0 ? 1 : 0) && std::chrono::steady_clock::now() < deadline) {
        sched_yield();
    }
}

void in_parent() {
    forks.fetch_sub(1);
    forks.notify_all();
}

void in_child() {
    log::forget_in_child();
    forks.store(0);
    inside.store(depth > 0 ? 1 : 0);
}

[[maybe_unused]] const int kRegistered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

AsyncThreadWatch::AsyncThreadWatch() : first_(!seen.exchange(true)) {
    if (first_) {
        before_ = epoll_descriptors();
    }
}

AsyncThreadWatch::~AsyncThreadWatch() {
    if (first_) {
        for (const int fd : epoll_descriptors()) {
            if (!before_.contains(fd)) {
                of_ucx.push_back(fd);
            }
        }
    }
}

void separate_from_parent() {
    for (const int fd : of_ucx) {
        const Fd own(epoll_create1(EPOLL_CLOEXEC));
        if (own) {
            dup3(own.get(), fd, O_CLOEXEC);
        }
    }
    of_ucx.clear();
}

InUcx::InUcx() {
    if (depth++ == 0) {
        enter();
    }
}

InUcx::~InUcx() {
    if (--depth == 0) {
        leave();
    }
}

OutOfUcx::OutOfUcx() { leave(); }

OutOfUcx::~OutOfUcx() { enter(); }

void let_fork() {
    if (forks.load(std::memory_order_relaxed) > 0) {
        const OutOfUcx outside;
    }
}

bool forked_after_ucx_started() {
    pid_t first = 0;
    return !started_in.compare_exchange_strong(first, getpid()) && first != getpid();
}

}  // namespace ucxstore

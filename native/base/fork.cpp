#include "base/fork.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "base/around_forks.hpp"
#include "base/handle.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"

namespace ucxstore::base {
namespace {

constexpr std::string_view kEpoll = "anon_inode:[eventpoll]";

// Calls `note` with each descriptor of an epoll instance. It takes no memory for names, which
// std::filesystem does, and ends the process where it gets none.
template <typename Note>
void for_each_epoll(Note note) {
    DIR* const folder = opendir("/proc/self/fd");
    if (folder == nullptr) {
        return;
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> owner(folder, &closedir);
    while (const dirent* const entry = readdir(folder)) {
        std::array<char, kEpoll.size() + 1> target;
        const ssize_t length =
            readlinkat(dirfd(folder), entry->d_name, target.data(), target.size());
        if (length > 0 &&
            std::string_view(target.data(), static_cast<std::size_t>(length)) == kEpoll) {
            note(std::atoi(entry->d_name));
        }
    }
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

// What follows is all that the core does when its process forks: it is registered when the core is
// loaded, so that no fork waits for its registration.

// The lock of these three is held from before the fork to after it.
void before_fork() UNCHECKED_LOCKS {
    forks.fetch_add(1);
    const auto deadline = std::chrono::steady_clock::now() + kForkWaits;
    while (inside.load() > (depth > 0 ? 1 : 0) && std::chrono::steady_clock::now() < deadline) {
        sched_yield();
    }
    ForksOfProcess::before();
}

void in_parent() UNCHECKED_LOCKS {
    ForksOfProcess::parent();
    forks.fetch_sub(1);
    forks.notify_all();
}

void in_child() UNCHECKED_LOCKS {
    fork_depth.fetch_add(1);  // first: this makes all locks anew
    log::forget_in_child();
    ForksOfProcess::child();
    forks.store(0);
    inside.store(depth > 0 ? 1 : 0);
}

[[maybe_unused]] const int kRegistered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

AsyncThreadWatch::AsyncThreadWatch() : first_(!seen) {
    if (first_) {
        for_each_epoll([this](int fd) { before_.push_back(fd); });
        first_ = !seen.exchange(true);
    }
}

AsyncThreadWatch::~AsyncThreadWatch() {
    if (!first_) {
        return;
    }
    try {
        for_each_epoll([this](int fd) {
            if (std::ranges::find(before_, fd) == before_.end()) {
                of_ucx.push_back(fd);
            }
        });
    } catch (const std::bad_alloc&) {
        seen = false;  // the next worker's looks again
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

}  // namespace ucxstore::base

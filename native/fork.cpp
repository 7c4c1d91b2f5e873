#include "fork.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "handle.hpp"

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
std::vector<int> of_ucx;

std::atomic<pid_t> started_in = 0;

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

bool forked_after_ucx_started() {
    pid_t first = 0;
    return !started_in.compare_exchange_strong(first, getpid()) && first != getpid();
}

}  // namespace ucxstore

#include "base/inherited.hpp"

#include <unistd.h>

#include <array>
#include <atomic>

namespace ucxstore::base {
namespace {

// A fixed array of atomics, since a forked child must not wait for a lock that nobody will release.
// One beyond its size is merely not closed in children.
std::array<std::atomic<int>, 4096>& descriptors_of_process() {
    constinit static std::array<std::atomic<int>, 4096> descriptors = {};  // fd + 1; 0 is free
    return descriptors;
}

}  // namespace

void enlist_for_children(int fd) {
    for (auto& place : descriptors_of_process()) {
        int expected = 0;
        if (place.compare_exchange_strong(expected, fd + 1)) {
            return;
        }
    }
}

void strike_off_for_children(int fd) {
    for (auto& place : descriptors_of_process()) {
        int expected = fd + 1;
        if (place.compare_exchange_strong(expected, 0)) {
            return;
        }
    }
}

void close_inherited_sockets() {
    for (auto& place : descriptors_of_process()) {
        const int fd = place.exchange(0) - 1;
        if (fd >= 0) {
            ::close(fd);
        }
    }
}

}  // namespace ucxstore::base

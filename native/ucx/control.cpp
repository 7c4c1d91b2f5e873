#include "ucx/control.hpp"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/status.hpp"

namespace ucxstore {
namespace {

// Descriptors of every control connection of this process, for close_inherited_controls(): a fixed
// array of atomics, since a forked child must not wait for a lock that nobody will release. One
// beyond its size is merely not closed in children.
std::array<std::atomic<int>, 4096>& open_controls() {
    static std::array<std::atomic<int>, 4096> descriptors = {};  // fd + 1; 0 is free
    return descriptors;
}

void enlist(int fd) {
    for (auto& place : open_controls()) {
        int expected = 0;
        if (place.compare_exchange_strong(expected, fd + 1)) {
            return;
        }
    }
}

void strike_off(int fd) {
    for (auto& place : open_controls()) {
        int expected = fd + 1;
        if (place.compare_exchange_strong(expected, 0)) {
            return;
        }
    }
}

}  // namespace

Control::Control(Progress& progress, Fd fd, std::function<void()> on_end)
    : progress_(progress), fd_(std::move(fd)) {
    progress_.watch(fd_.get(), [this, on_end = std::move(on_end)] { look(on_end); });
    enlist(fd_.get());
}

void Control::look(const std::function<void()>& on_end) {
    char byte;
    const ssize_t got = recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    // The end, an error, or bytes that no peer may send. on_end may destroy this, so it comes last.
    const auto end = on_end;
    close();
    end();
}

void Control::close() {
    if (fd_) {
        progress_.unwatch(fd_.get());
        strike_off(fd_.get());
        // A forked child may hold a copy of the descriptor: close alone would not tell the peer.
        shutdown(fd_.get(), SHUT_RDWR);
        fd_.reset();
    }
}

void close_inherited_controls() {
    for (auto& place : open_controls()) {
        const int fd = place.exchange(0) - 1;
        if (fd >= 0) {
            ::close(fd);
        }
    }
}

}  // namespace ucxstore

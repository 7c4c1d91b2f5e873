#include "ucx/control.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "base/inherited.hpp"

namespace ucxstore::ucx {
Control::Control(Progress& progress, base::Fd fd, std::function<void()> on_end)
    : progress_(progress), fd_(std::move(fd)) {
    progress_.watch(fd_.get(), [this, on_end = std::move(on_end)] { look(on_end); });
    base::enlist_for_children(fd_.get());
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
        base::strike_off_for_children(fd_.get());
        // A forked child may hold a copy of the descriptor: close alone would not tell the peer.
        shutdown(fd_.get(), SHUT_RDWR);
        fd_.reset();
    }
}

}  // namespace ucxstore::ucx

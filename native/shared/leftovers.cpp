#include "shared/leftovers.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <new>

namespace ucxstore::shared {

void Leftovers::add(int descriptor, std::uint64_t bytes) noexcept try {
    const base::Lock lock(mutex_);
    if (bytes == 0) {
        return;
    }
    if (!events_) {
        events_ = base::Fd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    }
    read_ends();
    std::array<char, 32> path;
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", descriptor);
    const int watch = inotify_add_watch(events_.get(), path.data(), IN_DELETE_SELF);
    if (watch >= 0 && files_.emplace(watch, bytes).second) {
        bytes_ += bytes;
    }
} catch (const std::bad_alloc&) {  // it does not count
}

std::uint64_t Leftovers::bytes() {
    const base::Lock lock(mutex_);
    if (!files_.empty()) {
        read_ends();
    }
    return bytes_;
}

void Leftovers::read_ends() {
    alignas(inotify_event) std::array<char, 4096> events;
    ssize_t got;
    while ((got = read(events_.get(), events.data(), events.size())) > 0) {
        for (ssize_t at = 0; at < got;) {
            inotify_event event;
            std::memcpy(&event, events.data() + at, sizeof(event));
            at += static_cast<ssize_t>(sizeof(event) + event.len);
            if (const auto gone = files_.find(event.wd); gone != files_.end()) {
                bytes_ -= gone->second;
                files_.erase(gone);
            }
        }
    }
}

}  // namespace ucxstore::shared

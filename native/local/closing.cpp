#include "local/closing.hpp"

#include <fcntl.h>

#include <atomic>
#include <exception>

#include "base/quiet_thread.hpp"

namespace ucxstore::local {
namespace {

constexpr int kMostThreads = 32;

// A forked child has none of these threads, and closes nothing apart that is not its own.
constinit std::atomic<int> threads = 0;

}  // namespace

void close_apart(Fd fd) noexcept {
    const int descriptor = fd.release();
    if (descriptor < 0) {
        return;
    }
    if (threads.fetch_add(1) < kMostThreads) {
        try {
            start_quiet_thread("ucxstore-close", [descriptor] {
                Fd(descriptor).reset();
                --threads;
            }).detach();
            return;
        } catch (const std::exception&) {  // for want of threads
        }
    }
    --threads;
}

bool is_memory(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

}  // namespace ucxstore::local

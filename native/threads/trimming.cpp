#include "threads/trimming.hpp"

#include <malloc.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "threads/quiet_thread.hpp"

namespace ucxstore::threads {
namespace {

// So what is freed together is trimmed together, after the last of it.
constexpr auto kTrimEvery = std::chrono::seconds(1);

std::atomic<bool> wanted = false;
// The process whose thread trims; 0 for none. A forked child does not have its parent's thread.
std::atomic<pid_t> trims = 0;

// Whether this process has no such thread yet, and is to start one.
bool begin() { return trims.exchange(getpid()) != getpid(); }

void run() {
    for (;;) {
        std::this_thread::sleep_for(kTrimEvery);
        wanted = false;
#ifdef __GLIBC__
        malloc_trim(0);
#endif
        if (wanted) {
            continue;
        }
        trims = 0;
        if (!wanted || !begin()) {
            return;
        }
    }
}

}  // namespace

void trim_soon() noexcept try {
    wanted = true;
    if (begin()) {
        start_quiet_thread("ucxstore-trim", run).detach();
    }
} catch (const std::exception&) {  // no thread or no memory: the next one tries again
    trims = 0;
}

}  // namespace ucxstore::threads

#include "threads/reclaimer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <exception>
#include <utility>

#include "base/mutex.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::threads {
namespace {

// Descriptors that wait, at the most. They count among those that the process may have, and their
// files take room on the disk.
constexpr std::size_t kMostFiles = 64;

// The memory of those that wait, at the most, as nobody counts it any more. One file may have more.
constexpr std::uint64_t kMostMemory = 256ull << 20;

// How long the thread waits for more.
constexpr std::chrono::milliseconds kWaitForMore{500};

}  // namespace

struct Reclaimer::State {
    const pid_t pid = getpid();
    base::Mutex mutex;
    base::Condition changed;
    struct File {
        base::Fd descriptor;
        std::uint64_t memory;
    };
    std::deque<File> files GUARDED_BY(mutex);
    std::uint64_t memory GUARDED_BY(mutex) = 0;  // of all that are not closed
    bool running GUARDED_BY(mutex) = false;      // whether there is a thread
    bool closing GUARDED_BY(mutex) = false;      // whether it closes a file now
    bool ending GUARDED_BY(mutex) = false;
};

Reclaimer::Reclaimer() : state_(std::make_shared<State>()) {}

Reclaimer::~Reclaimer() {
    if (getpid() != state_->pid) {
        return;  // a forked child, which has neither the thread nor perhaps the lock
    }
    base::UniqueLock lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this]() REQUIRES(state_->mutex) { return !state_->running; });
}

void Reclaimer::reclaim(base::Fd file, std::uint64_t memory) noexcept try {
    if (!file) {
        return;
    }
    const base::Lock lock(state_->mutex);
    if (state_->files.size() >= kMostFiles ||
        (state_->memory > 0 && state_->memory + memory > kMostMemory)) {
        return;
    }
    if (!state_->running) {
        start_quiet_thread("ucxstore-free", [state = state_] { run(state); }).detach();
        state_->running = true;
    }
    state_->files.push_back({std::move(file), memory});
    state_->memory += memory;
    state_->changed.notify_all();
} catch (const std::exception&) {  // no thread or no memory: it is closed here
}

void Reclaimer::wait() noexcept {
    base::UniqueLock lock(state_->mutex);
    state_->changed.wait(lock, [this]() REQUIRES(state_->mutex) {
        return state_->files.empty() && !state_->closing;
    });
}

void Reclaimer::run(const std::shared_ptr<State>& state) {
    base::UniqueLock lock(state->mutex);
    while (state->changed.wait_for(lock, kWaitForMore, [&]() REQUIRES(state->mutex) {
        return state->ending || !state->files.empty();
    }) && !state->files.empty()) {
        State::File file = std::move(state->files.front());
        state->files.pop_front();
        state->closing = true;
        lock.unlock();
        file.descriptor.reset();
        lock.lock();
        state->memory -= file.memory;
        state->closing = false;
        state->changed.notify_all();
    }
    state->running = false;
    state->changed.notify_all();
}

base::Fd open_to_reclaim(const base::Fd& directory, const std::string& name) {
    return base::Fd(openat(directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace ucxstore::threads

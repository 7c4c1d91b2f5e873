#include "stream/closing.hpp"

#include <fcntl.h>

#include <atomic>
#include <deque>
#include <exception>
#include <utility>

#include "base/mutex.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::stream {
namespace {

// So many closes wait at once. Memory has threads of its own, as its closes end.
constexpr int kMostThreads = 32;
constexpr int kMostForMemory = 2;

struct Closing {
    base::Fd fd;
    std::shared_ptr<const void> until_closed;
};

// What waits for a thread that closes it.
class Closings {
  public:
    Closings() = default;
    Closings(const Closings&) = delete;
    Closings& operator=(const Closings&) = delete;

    void add(base::Fd& fd, std::shared_ptr<const void>&& until_closed, int most_threads) {
        const base::Lock lock(mutex_);
        waiting_.push_back({{}, std::move(until_closed)});
        waiting_.back().fd = std::move(fd);
        if (threads_ < most_threads) {
            threads::start_quiet_thread("ucxstore-close", [this] { run(); }).detach();
            ++threads_;
        }
    }

  private:
    void run() {
        base::UniqueLock lock(mutex_);
        while (!waiting_.empty()) {
            Closing next = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            next.fd.reset();
            next.until_closed.reset();
            lock.lock();
        }
        --threads_;
    }

    base::Mutex mutex_;
    std::deque<Closing> waiting_ GUARDED_BY(mutex_);
    int threads_ GUARDED_BY(mutex_) = 0;
};

// A forked child has none of the threads, and closes nothing apart that is not its own.
struct OfProcess {
    const std::uint32_t depth = base::fork_depth.load();
    Closings memory;
    Closings others;
};

constinit std::atomic<OfProcess*> of_process = nullptr;

OfProcess& closings() {
    OfProcess* found = of_process.load();
    if (found == nullptr || found->depth != base::fork_depth.load()) {
        auto made = std::make_unique<OfProcess>();
        if (of_process.compare_exchange_strong(found, made.get())) {
            found = made.release();  // for as long as the process lives
        }
    }
    return *found;
}

}  // namespace

void close_apart(base::Fd fd, std::shared_ptr<const void> until_closed) noexcept {
    if (!fd) {
        return;
    }
    try {
        OfProcess& all = closings();
        if (is_memory(fd.get())) {
            all.memory.add(fd, std::move(until_closed), kMostForMemory);
        } else {
            all.others.add(fd, std::move(until_closed), kMostThreads);
        }
    } catch (const std::exception&) {  // no memory, or no thread: then it waits for the next one's
        static_cast<void>(fd.release());
    }
}

bool is_memory(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

}  // namespace ucxstore::stream

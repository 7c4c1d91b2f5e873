#include "threads/worker_pool.hpp"

#include <exception>
#include <optional>
#include <utility>

#include "base/mutex.hpp"

namespace ucxstore::threads {
namespace {

constexpr std::chrono::seconds kIdle{10};

}  // namespace

struct WorkerPool::State {
    State(int most_threads, int spare_threads, const char* named, Priority of_threads)
        : most(most_threads), spare(spare_threads), name(named), priority(of_threads) {}

    const int most;  // threads, but for those that are spare
    const int spare;
    const char* const name;
    const Priority priority;
    base::Mutex mutex;
    base::Condition changed;  // there is work, or an end
    base::Condition settled;  // there is none
    base::FairQueue<Task> tasks GUARDED_BY(mutex);
    int threads GUARDED_BY(mutex) = 0;
    int idle GUARDED_BY(mutex) = 0;  // of these
    bool ending GUARDED_BY(mutex) = false;

    // Whose work is done by the last of so many threads that have some.
    base::Next next_of(int busy) const {
        return busy <= most       ? base::Next::anybody
               : busy == most + 1 ? base::Next::idle_origins
                                  : base::Next::idle_sessions;
    }
    // By a thread that is not idle: what it is to do; nullopt for nothing.
    std::optional<base::FairQueue<Task>::Taken> take() REQUIRES(mutex) {
        auto taken = tasks.take(next_of(threads - idle));
        if (taken) {
            wake_one_more();  // whose turn it may be now
        }
        return taken;
    }
    // Only where it has something to do: it runs before whoever wakes it, as often as not.
    void wake_one_more() REQUIRES(mutex) {
        if (idle > 0 && tasks.has(next_of(threads - idle + 1))) {
            changed.notify_one();
        }
    }
};

WorkerPool::WorkerPool(int most_threads, int spare_threads, const char* name, Priority priority)
    : state_(std::make_shared<State>(most_threads, spare_threads, name, priority)) {}

WorkerPool::~WorkerPool() {
    const base::Lock lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
}

void WorkerPool::post(Task task, const base::Whose& whose) {
    Task here;
    {
        const base::Lock lock(state_->mutex);
        state_->tasks.push(whose, std::move(task));
        here = take_back_if_alone(whose);
    }
    if (here) {
        here();
    }
}

void WorkerPool::post_first(Task task, const base::Whose& whose) {
    Task here;
    {
        const base::Lock lock(state_->mutex);
        state_->tasks.push_first(whose, std::move(task));
        here = take_back_if_alone(whose);
    }
    if (here) {
        here();
    }
}

bool WorkerPool::try_post(Task task, const base::Whose& whose) {
    const base::Lock lock(state_->mutex);
    state_->tasks.push(whose, std::move(task));
    if (!ready_for_one_more()) {
        state_->tasks.pop_last(whose);
        return false;
    }
    return true;
}

Task WorkerPool::take_back_if_alone(const base::Whose& whose) REQUIRES(state_->mutex) {
    return ready_for_one_more() ? Task() : state_->tasks.pop_last(whose);  // it is the only one
}

// Sees to a thread for one more task. False where there is none at all.
bool WorkerPool::ready_for_one_more() REQUIRES(state_->mutex) {
    base::FairQueue<Task>& tasks = state_->tasks;
    state_->wake_one_more();
    if (static_cast<std::size_t>(state_->idle) >= tasks.size()) {
        return true;
    }
    const int threads = state_->threads;
    if (threads >= state_->most + state_->spare ||
        (threads >= state_->most && !tasks.has(state_->next_of(threads + 1)))) {
        return true;
    }
    try {
        start_quiet_thread(
            state_->name, [state = state_] { run(state); }, state_->priority)
            .detach();
        ++state_->threads;
    } catch (const std::exception&) {  // no thread, or no memory for one
        return state_->threads > 0;
    }
    return true;
}

bool WorkerPool::settle(std::chrono::milliseconds patience) {
    base::UniqueLock lock(state_->mutex);
    return state_->settled.wait_for(lock, patience, [this]() REQUIRES(state_->mutex) {
        return state_->tasks.empty() && state_->idle == state_->threads;
    });
}

void WorkerPool::run(const std::shared_ptr<State>& state) {
    base::UniqueLock lock(state->mutex);
    while (true) {
        auto next = state->take();
        if (!next) {
            if (state->ending) {
                break;
            }
            ++state->idle;
            state->settled.notify_all();
            const bool woken = state->changed.wait_for(lock, kIdle) == std::cv_status::no_timeout;
            --state->idle;
            if (woken) {
                continue;
            }
            next = state->take();
            if (!next) {
                break;
            }
        }
        lock.unlock();
        const auto begun = std::chrono::steady_clock::now();
        try {
            next->item();
        } catch (const std::exception&) {
            // For want of memory: whoever waits for it times out.
        }
        next->item = nullptr;  // what it holds goes without the lock
        const auto used = std::chrono::steady_clock::now() - begun;
        lock.lock();
        state->tasks.end(next->whose, used);
    }
    --state->threads;
    state->settled.notify_all();
}

}  // namespace ucxstore::threads

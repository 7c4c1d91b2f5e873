#include "base/worker_pool.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "base/quiet_thread.hpp"

namespace ucxstore {
namespace {

constexpr std::chrono::seconds kIdle{10};

}  // namespace

struct WorkerPool::State {
    std::mutex mutex;
    std::condition_variable changed;  // there is work, or an end
    std::condition_variable settled;  // there is none
    std::deque<Task> tasks;
    int threads = 0;
    int idle = 0;  // of these
    bool ending = false;
};

WorkerPool::WorkerPool() : state_(std::make_shared<State>()) {}

WorkerPool::~WorkerPool() {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
}

void WorkerPool::post(Task task) {
    std::unique_lock lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    run_here_if_alone(std::move(lock));
}

void WorkerPool::post_first(Task task) {
    std::unique_lock lock(state_->mutex);
    state_->tasks.push_front(std::move(task));
    run_here_if_alone(std::move(lock));
}

bool WorkerPool::try_post(Task task) {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    if (!ready_for_one_more()) {
        state_->tasks.pop_back();
        return false;
    }
    return true;
}

void WorkerPool::run_here_if_alone(std::unique_lock<std::mutex> lock) {
    if (!ready_for_one_more()) {
        const Task task = std::move(state_->tasks.front());  // it is the only one
        state_->tasks.pop_front();
        lock.unlock();
        task();
    }
}

// Under the lock: sees to a thread for one more task. False where there is none at all.
bool WorkerPool::ready_for_one_more() {
    if (static_cast<std::size_t>(state_->idle) >= state_->tasks.size()) {
        state_->changed.notify_one();
        return true;
    }
    if (state_->threads == kMostThreads) {
        return true;
    }
    try {
        start_quiet_thread("ucxstore-files", [state = state_] { run(state); }).detach();
        ++state_->threads;
    } catch (const std::exception&) {  // no thread, or no memory for one
        return state_->threads > 0;
    }
    return true;
}

bool WorkerPool::settle(std::chrono::milliseconds patience) {
    std::unique_lock lock(state_->mutex);
    return state_->settled.wait_for(lock, patience, [this] {
        return state_->tasks.empty() && state_->idle == state_->threads;
    });
}

void WorkerPool::run(const std::shared_ptr<State>& state) {
    std::unique_lock lock(state->mutex);
    while (true) {
        if (state->tasks.empty()) {
            ++state->idle;
            state->settled.notify_all();
            const bool woken = state->changed.wait_for(
                lock, kIdle, [&] { return state->ending || !state->tasks.empty(); });
            --state->idle;
            if (!woken || state->tasks.empty()) {
                break;
            }
        }
        Task task = std::move(state->tasks.front());
        state->tasks.pop_front();
        lock.unlock();
        try {
            task();
        } catch (const std::exception&) {
            // For want of memory: whoever waits for it times out.
        }
        task = nullptr;  // what it holds goes without the lock
        lock.lock();
    }
    --state->threads;
    state->settled.notify_all();
}

}  // namespace ucxstore

#include "threads/task_thread.hpp"

#include <utility>

namespace ucxstore::threads {

void WaitedTask::run() noexcept {
    try {
        call_(work_);
    } catch (...) {
        failure_ = std::current_exception();
    }
    const base::Lock lock(mutex_);
    done_ = true;
    ran_.notify_all();  // under the lock: see run()
}

void WaitedTask::wait() {
    base::UniqueLock lock(mutex_);
    ran_.wait(lock, [this]() REQUIRES(mutex_) { return done_; });
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

bool TaskQueue::push(Task task) {
    {
        const base::Lock lock(mutex_);
        if (closed_) {
            return false;
        }
        tasks_.push_back(std::move(task));
        any_.store(true);
    }
    if (sleeping_.load()) {
        wake();
    }
    return true;
}

bool TaskQueue::push(WaitedTask& task) {
    {
        const base::Lock lock(mutex_);
        if (closed_) {
            return false;
        }
        task.next_ = std::exchange(waited_, &task);
        any_.store(true);
    }
    if (sleeping_.load()) {
        wake();
    }
    return true;
}

bool TaskQueue::run(TaskThread::Driver& driver) {
    if (!any_.load()) {
        return false;
    }
    std::vector<Task> tasks;
    WaitedTask* last = nullptr;
    {
        const base::Lock lock(mutex_);
        tasks.swap(tasks_);
        last = std::exchange(waited_, nullptr);
        any_.store(false);
    }
    for (auto& task : tasks) {
        TaskThread::guarded(driver, task);
    }
    WaitedTask* first = nullptr;  // in the order in which they came
    while (last != nullptr) {
        WaitedTask* const next = std::exchange(last->next_, first);
        first = std::exchange(last, next);
    }
    while (first != nullptr) {
        std::exchange(first, first->next_)->run();
    }
    return true;
}

void TaskQueue::close(TaskThread::Driver& driver) {
    {
        const base::Lock lock(mutex_);
        closed_ = true;
    }
    run(driver);
}

}  // namespace ucxstore::threads

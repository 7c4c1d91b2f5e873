#include "base/task_thread.hpp"

#include <future>
#include <utility>

namespace ucxstore {

bool TaskThread::post_and_wait(Task task) {
    auto done = std::make_shared<std::promise<void>>();
    auto finished = done->get_future();
    if (!post([task = std::move(task), done] {
            task();
            done->set_value();
        })) {
        return false;
    }
    finished.wait();
    return true;
}

bool TaskQueue::push(Task task) {
    {
        const std::lock_guard lock(mutex_);
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

bool TaskQueue::run() {
    if (!any_.load()) {
        return false;
    }
    std::vector<Task> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
        any_.store(false);
    }
    for (auto& task : tasks) {
        task();
    }
    return true;
}

void TaskQueue::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    run();
}

}  // namespace ucxstore

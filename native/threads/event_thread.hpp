// A thread that sleeps until a descriptor can be read or written, a task is posted, or a deadline
// has come, after a look for a moment. While it sleeps, another thread can do its work.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"
#include "threads/spin.hpp"
#include "threads/task_thread.hpp"
#include "threads/thread_bound.hpp"

namespace ucxstore::threads {

class EventThread : public TaskThread {
  public:
    // `name` is the thread's, at most 15 bytes. Throws Error(resource).
    EventThread(Driver& driver, std::string name);
    EventThread(const EventThread&) = delete;
    EventThread& operator=(const EventThread&) = delete;
    ~EventThread() override { stop(); }

    bool post(Task task) override { return tasks_.push(std::move(task)); }
    bool post(WaitedTask& task) override { return tasks_.push(task); }

    // Runs `work` here and now, as on the thread: two wake-ups of threads less than to post it.
    // False where the thread is at work, or has some, or has stopped: so all that was posted before
    // has run. Never waits. `work` must not wait, either.
    template <typename Work>
    bool stand_in(const Work& work) {
        if (!turn_.try_lock()) {
            return false;
        }
        const bool idle = tasks_.empty();
        const bool ran = idle && run_in_turn(work);
        turn_.unlock();
        return ran;
    }
    // The same, once the thread has done what it is at; false only where that has stopped.
    template <typename Work>
    bool wait_and_stand_in(const Work& work) {
        waiting_.fetch_add(1, std::memory_order_relaxed);
        const base::Lock lock(turn_);
        waiting_.fetch_sub(1, std::memory_order_relaxed);
        return run_in_turn(work);
    }

    // Calls `on_event` on the thread whenever `fd` can be read or has hung up, or else when what
    // watch_for() names is so, or it has hung up at both ends. Only on the thread; on_event may
    // call these.
    using OnEvent = std::function<void()>;
    void watch(int fd, OnEvent on_event);
    void watch_for(int fd, bool readable, bool writable);
    void watch_writable(int fd, bool writable) { watch_for(fd, true, writable); }
    void unwatch(int fd);

    // Runs what was posted, and ends the thread. Not on the thread itself.
    void stop();

  private:
    void run();
    int begin_sleep() REQUIRES(turn_);
    int sleep(int timeout_ms);
    void let_in();
    void handle(int count) REQUIRES(turn_);
    template <typename Work>
    bool run_in_turn(const Work& work) REQUIRES(turn_) {
        if (stopped_ || base::fork_depth.load(std::memory_order_relaxed) != fork_depth_) {
            return false;
        }
        bound_.bind();
        guarded(driver_, work);
        if (driver_.deadline() < wakes_at_) {
            tasks_.wake();
        }
        return true;
    }

    Driver& driver_;
    const base::Fd epoll_;
    TaskQueue tasks_;
    const std::uint32_t fork_depth_ = base::fork_depth.load();  // a child has no such thread
    // To have it is to be the thread, for all that only the thread may do. The thread has it but
    // for its sleep.
    base::Mutex turn_;
    std::atomic<int> waiting_ = 0;  // for it: callers of wait_and_stand_in()
    ThreadBound bound_{ThreadBound::Later()};
    bool stopped_ GUARDED_BY(turn_) = false;
    base::TimePoint wakes_at_ GUARDED_BY(turn_) = base::TimePoint::min();  // at the latest
    std::unordered_map<int, std::shared_ptr<OnEvent>> watches_;
    // Of all: a descriptor that is told of late would have its turn late.
    std::vector<epoll_event> events_;
    bool had_event_ = false;  // of a descriptor, since it slept last
    Spin spin_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

// Lets the thread give back what the recycler of this process has kept for too long.
void watch_recycler(EventThread& thread);

}  // namespace ucxstore::threads

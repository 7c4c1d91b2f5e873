// A thread that sleeps until a descriptor can be read or written, a task is posted, or a deadline
// has come. It never polls.
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
    void wait(base::TimePoint now);

    Driver& driver_;
    const base::Fd epoll_;
    TaskQueue tasks_;
    ThreadBound bound_{ThreadBound::Later()};
    std::unordered_map<int, std::shared_ptr<OnEvent>> watches_;
    std::vector<epoll_event> events_{1};  // of all: what is told of late would have its turn late
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

// Lets the thread give back what the recycler of this process has kept for too long.
void watch_recycler(EventThread& thread);

}  // namespace ucxstore::threads

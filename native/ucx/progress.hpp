// Progress thread: drives its UCX workers, which no other thread touches. It never takes the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/handle.hpp"
#include "base/status.hpp"
#include "threads/task_thread.hpp"
#include "threads/thread_bound.hpp"
#include "ucx/crowding.hpp"
#include "ucx/worker.hpp"

namespace ucxstore::ucx {

class Progress : public threads::TaskThread {
  public:
    // `polling`: do not sleep while there is a worker. `name` is the thread's, at most 15 bytes.
    Progress(Driver& driver, bool polling, std::string name);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() override { stop(); }

    bool post(threads::Task task) override { return tasks_.push(std::move(task)); }
    bool post(threads::WaitedTask& task) override { return tasks_.push(task); }

    // Drives `worker` from now on, and no longer. Both only on the progress thread, and not inside
    // a callback of UCX's.
    void add(Worker& worker);
    void remove(Worker& worker);
    // Removes and destroys `worker`, unless UCX still has something of it to complete: then false,
    // or, where that is `overdue`, it is leaked.
    bool retire(std::unique_ptr<Worker>& worker, bool overdue);

    // Calls `on_event` on the progress thread whenever `fd` can be read or has hung up.
    // Both only on the progress thread.
    void watch(int fd, std::function<void()> on_event);
    void unwatch(int fd);

    // Calls `work` each round: true where it has done anything. Only on the progress thread.
    void set_work(std::function<bool()> work);

    void stop();

  private:
    struct Watch {
        int fd;
        std::shared_ptr<const std::function<void()>> on_event;
    };

    // A worker that has nothing to do is armed: its descriptor is readable once it has.
    struct Driven {
        Worker* worker;
        base::TimePoint last_active;
        bool armed;
        bool is_slow = false;  // it took long when it was last driven
        int idle_events = 0;   // that its descriptor told of while it was not armed, all in vain
    };

    void run();
    bool drive(base::TimePoint now);
    bool drive(Driven& one, base::TimePoint round);
    bool drive_others();
    bool arm_idle(base::TimePoint now);
    bool any_busy() const;
    // Without workers there is no message to come: a client may stay for long after its last store.
    bool polls() const { return polling_ && !driven_.empty(); }
    void wait_longer(base::TimePoint now, base::Clock::duration idle, bool all_armed);
    void poll_fds(int timeout_ms);
    void rest(base::TimePoint now, base::Clock::duration nap);
    void sleep(base::TimePoint now, base::TimePoint until);
    void listen(int fd);
    void hear(const Driven& one, std::uint32_t events);
    void listen_again(Driven& one);

    Driver& driver_;
    const bool polling_;
    base::Fd epoll_;
    threads::TaskQueue tasks_;
    threads::ThreadBound bound_{threads::ThreadBound::Later()};
    std::vector<Watch> watches_;
    bool heard_ = false;  // whether one of them has called since tick() did
    std::vector<Driven> driven_;
    std::function<bool()> work_;
    Crowding crowding_;

    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace ucxstore::ucx

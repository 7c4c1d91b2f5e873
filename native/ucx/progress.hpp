// Progress thread: drives its UCX workers, which no other thread touches. It never takes the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/crowding.hpp"
#include "base/event_fd.hpp"
#include "base/handle.hpp"
#include "base/status.hpp"
#include "base/thread_bound.hpp"
#include "ucx/worker.hpp"

namespace ucxstore {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

class Progress {
  public:
    // What the thread drives besides workers. Both run on the progress thread.
    class Driver {
      public:
        virtual ~Driver() = default;
        // Every kTick while anything happens, and after every sleep: deadlines, failed endpoints.
        virtual void tick(TimePoint now) = 0;
        // When tick() must run at the latest if nothing else happens; TimePoint::max() for never.
        virtual TimePoint deadline() const = 0;
    };

    // `polling`: never sleep. `name` is the thread's, at most 15 bytes.
    Progress(Driver& driver, bool polling, std::string name);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { stop(); }

    // Runs `task` on the progress thread; false once it has stopped.
    bool post(std::function<void()> task);
    // The same, and waits until it has run.
    bool post_and_wait(std::function<void()> task);

    // Runs `task` on the progress thread and returns what it returns, or throws what it throws;
    // Error(connect) with `stopped` once the thread has stopped.
    template <typename Task>
    auto call(Task task, const char* stopped) -> decltype(task()) {
        decltype(task()) result{};
        std::exception_ptr failure;
        if (!post_and_wait([&] {
                try {
                    result = task();
                } catch (...) {
                    failure = std::current_exception();
                }
            })) {
            throw Error(ErrorKind::connect, stopped);
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
        return result;
    }

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

    void stop();

  private:
    struct Watch {
        int fd;
        std::function<void()> on_event;
    };

    // A worker that has nothing to do is armed: its descriptor is readable once it has.
    struct Driven {
        Worker* worker;
        TimePoint last_active;
        bool armed;
    };

    void run();
    bool run_tasks();
    bool drive(TimePoint now);
    bool arm_idle(TimePoint now);
    bool any_busy() const;
    void wait_longer(TimePoint now, Clock::duration idle, bool all_armed);
    void poll_fds(int timeout_ms);
    void rest(TimePoint now, Clock::duration nap);
    void sleep(TimePoint now, TimePoint until);
    void listen(int fd);
    void wake() { wake_.set(); }

    Driver& driver_;
    const bool polling_;
    Fd epoll_;
    const EventFd wake_;
    ThreadBound bound_{ThreadBound::Later()};
    std::vector<Watch> watches_;
    std::vector<Driven> driven_;
    Crowding crowding_;

    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;
    bool closed_ = false;
    std::atomic<bool> has_tasks_ = false;
    std::atomic<bool> sleeping_ = false;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace ucxstore

// The progress thread: the only one that touches its worker. It never takes the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "crowding.hpp"
#include "handle.hpp"
#include "worker.hpp"

namespace ucxstore {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

class Progress {
  public:
    // What the thread drives besides the worker. Both run on the progress thread.
    class Driver {
      public:
        virtual ~Driver() = default;
        // Every kTick while anything happens, and after every sleep: deadlines, failed endpoints.
        virtual void tick(TimePoint now) = 0;
        // When tick() must run at the latest if nothing else happens; TimePoint::max() for never.
        virtual TimePoint deadline() const = 0;
    };

    // `polling`: never sleep. `name` is the thread's, at most 15 bytes.
    Progress(Worker& worker, Driver& driver, bool polling, std::string name);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { stop(); }

    // Runs `task` on the progress thread; false once it has stopped.
    bool post(std::function<void()> task);
    // The same, and waits until it has run.
    bool post_and_wait(std::function<void()> task);

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

    void run();
    bool run_tasks();
    void poll_fds(int timeout_ms);
    void rest(TimePoint now, Clock::duration nap);
    void sleep(TimePoint now, TimePoint until);
    void wake();

    Worker& worker_;
    Driver& driver_;
    const bool polling_;
    Fd epoll_;
    Fd wake_;
    std::vector<Watch> watches_;
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

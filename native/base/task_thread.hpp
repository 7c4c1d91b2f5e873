// A thread that runs tasks which other threads give it: the interface, and the queue behind it.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/event_fd.hpp"
#include "base/status.hpp"

namespace ucxstore {

using Task = std::function<void()>;

class TaskThread {
  public:
    // What the thread looks at besides tasks. Both run on it.
    class Driver {
      public:
        virtual ~Driver() = default;
        // Looks at deadlines and failures: after whatever has happened, and when it is due.
        virtual void tick(TimePoint now) = 0;
        // When tick() must run at the latest if nothing happens; TimePoint::max() for never.
        virtual TimePoint deadline() const = 0;
    };

    virtual ~TaskThread() = default;

    // Runs `task` on the thread; false once that has stopped.
    virtual bool post(Task task) = 0;
    // The same, and waits until it has run.
    bool post_and_wait(Task task);

    // Runs `task` on the thread and returns what it returns, or throws what it throws;
    // Error(connect) with `stopped` once the thread has stopped.
    template <typename Work>
    auto call(Work task, const char* stopped) -> decltype(task()) {
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
};

// The tasks of such a thread. It sleeps until fd() can be read, or looks here now and then.
class TaskQueue {
  public:
    // Any thread. False once it is closed.
    bool push(Task task);
    // Makes fd() readable, if the thread sleeps.
    void wake() const { wake_.set(); }
    int fd() const { return wake_.get(); }
    bool empty() const { return !any_.load(); }

    // What follows is for the thread itself.

    // Runs all that are queued; false where there are none.
    bool run();
    // Between the two, each push() makes fd() readable.
    void begin_sleep() { sleeping_.store(true); }
    void end_sleep() { sleeping_.store(false); }
    void clear_wake() const { wake_.clear(); }
    // Takes no more, and runs those that are queued: threads may wait for them.
    void close();

  private:
    const EventFd wake_;
    std::mutex mutex_;
    std::vector<Task> tasks_;
    bool closed_ = false;
    std::atomic<bool> any_ = false;
    std::atomic<bool> sleeping_ = false;
};

}  // namespace ucxstore

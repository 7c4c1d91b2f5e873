// A thread that runs tasks which other threads give it: the interface, and the queue behind it.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "base/clock.hpp"
#include "base/event_fd.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"

namespace ucxstore::threads {

using Task = std::function<void()>;

// A task in the memory of the thread that waits for it: so it can be given where there is no other.
class WaitedTask {
  public:
    template <typename Work>
    explicit WaitedTask(Work& work)
        : work_(&work), call_([](void* task) { (*static_cast<Work*>(task))(); }) {}
    WaitedTask(const WaitedTask&) = delete;
    WaitedTask& operator=(const WaitedTask&) = delete;

    // On the thread that it was given to. Whoever waits may destroy this at once.
    void run() noexcept;
    // Waits until it has run, and throws what it has thrown.
    void wait();

  private:
    friend class TaskQueue;

    void* const work_;
    void (*const call_)(void*);
    WaitedTask* next_ = nullptr;
    std::exception_ptr failure_;
    base::Mutex mutex_;
    base::Condition ran_;
    bool done_ GUARDED_BY(mutex_) = false;
};

class TaskThread {
  public:
    // What the thread looks at besides tasks. Both run on it.
    class Driver {
      public:
        virtual ~Driver() = default;
        // Looks at deadlines and failures: after whatever has happened, and when it is due.
        virtual void tick(base::TimePoint now) = 0;
        // When tick() must run at the latest if nothing happens; TimePoint::max() for never.
        virtual base::TimePoint deadline() const = 0;
        // A task, an event or a tick has failed, mostly for want of memory, and nobody knows what
        // it was for: ends, with this reason, whatever it may have been.
        virtual void failed(const char* why) noexcept { static_cast<void>(why); }
    };
    // Runs `work` at the top of a thread, where an exception would end the process.
    template <typename Work>
    static void guarded(Driver& driver, const Work& work) noexcept {
        try {
            work();
        } catch (const std::exception& error) {
            driver.failed(error.what());
        }
    }

    virtual ~TaskThread() = default;

    // Runs `task` on the thread; false once that has stopped.
    virtual bool post(Task task) = 0;
    virtual bool post(WaitedTask& task) = 0;
    // The same, and waits until it has run. Throws what it throws; needs no memory.
    template <typename Work>
    bool post_and_wait(Work work) {
        WaitedTask task(work);
        if (!post(task)) {
            return false;
        }
        task.wait();
        return true;
    }

    // Runs `task` on the thread and returns what it returns, or throws what it throws;
    // Error(connect) with `stopped` once the thread has stopped.
    template <typename Work>
    auto call(Work task, const char* stopped) -> decltype(task()) {
        decltype(task()) result{};
        if (!post_and_wait([&] { result = task(); })) {
            throw base::Error(base::ErrorKind::connect, stopped);
        }
        return result;
    }
};

// Runs `work` on the thread, without waiting for it unless there is no memory to do so. For what
// ends something, which must not fail.
template <typename Work>
void post_or_wait(TaskThread& thread, const Work& work) {
    try {
        thread.post(work);
    } catch (const std::bad_alloc&) {
        thread.post_and_wait([&] { work(); });
    }
}

// The tasks of such a thread. It sleeps until fd() can be read, or looks here now and then.
class TaskQueue {
  public:
    // Any thread. False once it is closed.
    bool push(Task task);
    bool push(WaitedTask& task);
    // Makes fd() readable, if the thread sleeps.
    void wake() const { wake_.set(); }
    int fd() const { return wake_.get(); }
    bool empty() const { return !any_.load(); }

    // What follows is for the thread itself.

    // Runs all that are queued; false where there are none. The driver is told of those that fail
    // and that nobody waits for.
    bool run(TaskThread::Driver& driver);
    // Between the two, each push() makes fd() readable.
    void begin_sleep() { sleeping_.store(true); }
    void end_sleep() { sleeping_.store(false); }
    void clear_wake() const { wake_.clear(); }
    // Takes no more, and runs those that are queued: threads may wait for them.
    void close(TaskThread::Driver& driver);

  private:
    const base::EventFd wake_;
    base::Mutex mutex_;
    std::vector<Task> tasks_ GUARDED_BY(mutex_);
    WaitedTask* waited_ GUARDED_BY(mutex_) = nullptr;  // the last of them, and so on
    bool closed_ GUARDED_BY(mutex_) = false;
    std::atomic<bool> any_ = false;
    std::atomic<bool> sleeping_ = false;
};

}  // namespace ucxstore::threads

// Locks that a forked child can use, whoever held them in its parent. The core has no others.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <type_traits>

#include "base/steps.hpp"
#include "base/thread_safety.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace ucxstore::base {

// How many forks lie between the process that has loaded the core and this one. Written by
// base/fork.cpp, in a child that has one thread.
inline constinit std::atomic<std::uint32_t> fork_depth = 0;

// A lock that the parent's other threads may have been using when the process was forked. A forked
// child makes it anew when it first uses it, and never ends the parent's, which might wait for
// threads that are not there. What the lock guards may be half changed: a child leaves that alone,
// as it does with its parent's connections and servers, or holds the lock across the fork
// (base/around_forks.hpp).
template <typename T>
class RemadeInChild {
  public:
    constexpr RemadeInChild() noexcept : thing_(), made_at_(0) {
        if (!std::is_constant_evaluated()) {
            made_at_.store(fork_depth.load(std::memory_order_relaxed), std::memory_order_relaxed);
        }
    }
    RemadeInChild(const RemadeInChild&) = delete;
    RemadeInChild& operator=(const RemadeInChild&) = delete;
    ~RemadeInChild() {
        if (is_made()) {
            thing_.~T();
        }
    }

    bool is_made() const {
        return made_at_.load(std::memory_order_acquire) ==
               fork_depth.load(std::memory_order_relaxed);
    }
    T& get() {
        const std::uint32_t depth = fork_depth.load(std::memory_order_relaxed);
        if (made_at_.load(std::memory_order_acquire) != depth) [[unlikely]] {
            make(depth);
        }
        return thing_;
    }

  private:
    static constexpr std::uint32_t kBeingMade = 1u << 31;

    [[gnu::noinline]] void make(std::uint32_t depth) {
        std::uint32_t found = made_at_.load(std::memory_order_acquire);
        while (found != depth) {
            if (found == (depth | kBeingMade)) {  // by another thread of this process
                sched_yield();
                found = made_at_.load(std::memory_order_acquire);
            } else if (made_at_.compare_exchange_weak(found, depth | kBeingMade)) {
#ifdef __SANITIZE_THREAD__
                __tsan_mutex_destroy(&thing_, 0);  // it does not see that this is another one
#endif
                new (&thing_) T;
                made_at_.store(depth, std::memory_order_release);
                return;
            }
        }
    }

    union {
        T thing_;
    };
    std::atomic<std::uint32_t> made_at_;
};

// Tests fork while a lock is held, which takes a load where there is no test: see CMakeLists.txt.
inline void step_under_lock() {
#ifdef UCXSTORE_STEPS_UNDER_LOCKS
    step();
#endif
}

class CAPABILITY("mutex") Mutex {
  public:
    constexpr Mutex() noexcept = default;

    void lock() ACQUIRE() UNCHECKED_LOCKS {
        mutex_.get().lock();
        step_under_lock();
    }
    bool try_lock() TRY_ACQUIRE(true) UNCHECKED_LOCKS { return mutex_.get().try_lock(); }
    void unlock() RELEASE() UNCHECKED_LOCKS {
        if (mutex_.is_made()) {  // or it was held across the fork, and will be made anew
            mutex_.get().unlock();
        }
    }

  private:
    friend class Condition;

    RemadeInChild<std::mutex> mutex_;
};

class CAPABILITY("mutex") TimedMutex {
  public:
    void lock() ACQUIRE() UNCHECKED_LOCKS {
        mutex_.get().lock();
        step_under_lock();
    }
    bool try_lock() TRY_ACQUIRE(true) UNCHECKED_LOCKS { return mutex_.get().try_lock(); }
    template <typename Time>
    bool try_lock_until(const Time& time) TRY_ACQUIRE(true) UNCHECKED_LOCKS {
        return mutex_.get().try_lock_until(time);
    }
    void unlock() RELEASE() UNCHECKED_LOCKS {
        if (mutex_.is_made()) {
            mutex_.get().unlock();
        }
    }

  private:
    RemadeInChild<std::timed_mutex> mutex_;
};

// Whoever writes comes before those who begin to read, so that readers who are always there do not
// keep it out, as they would of a std::shared_mutex. A thread that reads must not begin again.
class CAPABILITY("mutex") SharedMutex {
  public:
    SharedMutex() = default;

    void lock() ACQUIRE() UNCHECKED_LOCKS {
        pthread_rwlock_wrlock(&lock_.get().native);
        step_under_lock();
    }
    bool try_lock() TRY_ACQUIRE(true) UNCHECKED_LOCKS {
        return pthread_rwlock_trywrlock(&lock_.get().native) == 0;
    }
    void unlock() RELEASE() UNCHECKED_LOCKS { pthread_rwlock_unlock(&lock_.get().native); }
    void lock_shared() ACQUIRE_SHARED() UNCHECKED_LOCKS {
        pthread_rwlock_rdlock(&lock_.get().native);
        step_under_lock();
    }
    void unlock_shared() RELEASE_SHARED() UNCHECKED_LOCKS { unlock(); }

  private:
    struct WriterFirst {
        pthread_rwlock_t native = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    };

    RemadeInChild<WriterFirst> lock_;
};

// Holds a lock for a scope. Not the standard's classes: clang's analysis does not see what they do.
template <typename M>
class SCOPED_CAPABILITY [[nodiscard]] Lock {
  public:
    explicit Lock(M& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    // The caller has taken it.
    Lock(M& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() RELEASE() { mutex_.unlock(); }

  private:
    M& mutex_;
};

// Holds a lock for a scope with others who only read.
template <typename M>
class SCOPED_CAPABILITY [[nodiscard]] ReadLock {
  public:
    explicit ReadLock(M& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
    ReadLock(const ReadLock&) = delete;
    ReadLock& operator=(const ReadLock&) = delete;
    ~ReadLock() RELEASE() { mutex_.unlock_shared(); }

  private:
    M& mutex_;
};

// Holds a lock, and may let go of it meanwhile: by itself, or while it waits for a Condition.
template <typename M>
class SCOPED_CAPABILITY [[nodiscard]] UniqueLock {
  public:
    explicit UniqueLock(M& mutex) ACQUIRE(mutex) : lock_(mutex) {}
    UniqueLock(const UniqueLock&) = delete;
    UniqueLock& operator=(const UniqueLock&) = delete;
    ~UniqueLock() RELEASE() = default;

    void lock() ACQUIRE() UNCHECKED_LOCKS { lock_.lock(); }
    void unlock() RELEASE() UNCHECKED_LOCKS { lock_.unlock(); }
    bool owns_lock() const { return lock_.owns_lock(); }
    M* mutex() const { return lock_.mutex(); }

  private:
    std::unique_lock<M> lock_;
};

class Condition {
  public:
    void notify_one() { condition_.get().notify_one(); }
    void notify_all() { condition_.get().notify_all(); }

    template <typename... Until>
    void wait(UniqueLock<Mutex>& lock, Until... until) {
        const Adopted adopted(lock);
        condition_.get().wait(adopted.lock, until...);
    }
    template <typename Duration, typename... Until>
    auto wait_for(UniqueLock<Mutex>& lock, const Duration& duration, Until... until) {
        Adopted adopted(lock);
        return condition_.get().wait_for(adopted.lock, duration, until...);
    }
    template <typename Time, typename... Until>
    auto wait_until(UniqueLock<Mutex>& lock, const Time& time, Until... until) {
        Adopted adopted(lock);
        return condition_.get().wait_until(adopted.lock, time, until...);
    }

  private:
    // What the standard's condition variable takes. `lock` has the mutex before and after.
    struct Adopted {
        explicit Adopted(UniqueLock<Mutex>& of) : lock(of.mutex()->mutex_.get(), std::adopt_lock) {}
        Adopted(const Adopted&) = delete;
        Adopted& operator=(const Adopted&) = delete;
        ~Adopted() { lock.release(); }
        mutable std::unique_lock<std::mutex> lock;
    };

    RemadeInChild<std::condition_variable> condition_;
};

}  // namespace ucxstore::base

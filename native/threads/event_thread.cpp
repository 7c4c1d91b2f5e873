#include "threads/event_thread.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/status.hpp"
#include "memory/recycler.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::threads {
namespace {

// So long it takes until a thread that waits is awake, where a processor is free.
constexpr std::chrono::microseconds kWakes{100};

}  // namespace

EventThread::EventThread(Driver& driver, std::string name)
    : driver_(driver), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) {
        base::throw_errno("creating an epoll instance", base::ErrorKind::resource);
    }
    epoll_event event{.events = EPOLLIN, .data = {.fd = tasks_.fd()}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, tasks_.fd(), &event) != 0) {
        base::throw_errno("watching a descriptor", base::ErrorKind::resource);
    }
    thread_ = start_quiet_thread(name, [this] { run(); }, Priority::prompt);
}

void EventThread::watch(int fd, OnEvent on_event) {
    bound_.check("EventThread::watch");
    watches_[fd] = std::make_shared<OnEvent>(std::move(on_event));
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        const int why = errno;
        watches_.erase(fd);
        errno = why;
        base::throw_errno("watching a descriptor", base::ErrorKind::resource);
    }
}

void EventThread::watch_for(int fd, bool readable, bool writable) {
    bound_.check("EventThread::watch_for");
    const std::uint32_t read = EPOLLIN | EPOLLRDHUP;
    const std::uint32_t write = EPOLLOUT;
    epoll_event event{.events = (readable ? read : 0) | (writable ? write : 0), .data = {.fd = fd}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventThread::unwatch(int fd) {
    bound_.check("EventThread::unwatch");
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    watches_.erase(fd);
}

void EventThread::stop() {
    if (!thread_.joinable()) {
        return;
    }
    stop_.store(true);
    tasks_.wake();
    thread_.join();
}

// Returns for how many milliseconds.
int EventThread::begin_sleep() {
    events_.resize(watches_.size() + 1);
    tasks_.begin_sleep();
    wakes_at_ = driver_.deadline();
    if (!tasks_.empty() || stop_.load()) {
        return 0;
    }
    if (wakes_at_ == base::TimePoint::max()) {
        return -1;
    }
    // Not the difference where it is due: TimePoint::min() is too far away for one.
    const base::TimePoint now = base::Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        wakes_at_ <= now ? base::Clock::duration(0) : wakes_at_ - now);
    return static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
}

int EventThread::sleep(int timeout_ms) {
    const auto wait = [this](int milliseconds) {
        return epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                          milliseconds);
    };
    int count = 0;
    if (timeout_ms != 0 && std::exchange(had_event_, false) &&
        spin_.until([&] { return (count = wait(0)) != 0; })) {
        return count;
    }
    return wait(timeout_ms);
}

// A lock goes to whoever asks first once it is free, so a thread that has more to do would have it
// back before a caller is awake.
void EventThread::let_in() {
    const base::TimePoint end = base::Clock::now() + kWakes;
    while (waiting_.load(std::memory_order_relaxed) > 0 && base::Clock::now() < end) {
        sched_yield();
    }
}

void EventThread::handle(int count) {
    tasks_.end_sleep();
    for (int i = 0; i < count; ++i) {
        const int fd = events_[static_cast<std::size_t>(i)].data.fd;
        if (fd == tasks_.fd()) {
            tasks_.clear_wake();
            continue;
        }
        // One event may end what another one of these was for.
        if (const auto found = watches_.find(fd); found != watches_.end()) {
            had_event_ = true;
            const auto on_event = found->second;
            guarded(driver_, *on_event);
        }
    }
    tasks_.run(driver_);
    guarded(driver_, [&] { driver_.tick(base::Clock::now()); });
}

void EventThread::run() {
    base::UniqueLock turn(turn_);
    while (!stop_.load()) {
        const int timeout_ms = begin_sleep();
        turn.unlock();
        const int count = sleep(timeout_ms);
        let_in();
        turn.lock();
        bound_.bind();
        handle(count);
    }
    stopped_ = true;
    tasks_.close(driver_);
}

void watch_recycler(EventThread& thread) {
    // Made here, where its failure for want of descriptors has a caller to go to.
    auto& recycler = memory::Recycler::instance();
    thread.post(
        [&thread, &recycler] { thread.watch(recycler.timer(), [&recycler] { recycler.trim(); }); });
}

}  // namespace ucxstore::threads

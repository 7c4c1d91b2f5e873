#include "threads/event_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status.hpp"
#include "memory/recycler.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::threads {

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
    events_.resize(std::max(events_.size(), watches_.size() + 2));
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

void EventThread::wait(base::TimePoint now) {
    int timeout_ms = -1;
    if (const base::TimePoint due = driver_.deadline(); due != base::TimePoint::max()) {
        // Not the difference where it is due: TimePoint::min() is too far away for one.
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            due <= now ? base::Clock::duration(0) : due - now);
        timeout_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
    }
    tasks_.begin_sleep();
    const bool awake = !tasks_.empty() || stop_.load();
    const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                 awake ? 0 : timeout_ms);
    tasks_.end_sleep();
    for (int i = 0; i < count; ++i) {
        const int fd = events_[static_cast<std::size_t>(i)].data.fd;
        if (fd == tasks_.fd()) {
            tasks_.clear_wake();
            continue;
        }
        // One event may end what another one of these was for.
        if (const auto found = watches_.find(fd); found != watches_.end()) {
            const auto on_event = found->second;
            guarded(driver_, *on_event);
        }
    }
}

void EventThread::run() {
    bound_.bind();
    while (!stop_.load()) {
        wait(base::Clock::now());
        tasks_.run(driver_);
        guarded(driver_, [&] { driver_.tick(base::Clock::now()); });
    }
    tasks_.close(driver_);
}

void watch_recycler(EventThread& thread) {
    // Made here, where its failure for want of descriptors has a caller to go to.
    auto& recycler = memory::Recycler::instance();
    thread.post(
        [&thread, &recycler] { thread.watch(recycler.timer(), [&recycler] { recycler.trim(); }); });
}

}  // namespace ucxstore::threads

#include "progress.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <future>

#include "status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// How often descriptors and deadlines are looked at while the thread is busy.
constexpr auto kTick = 1ms;

// How long it looks for more before it sleeps: a reply to a small request comes within it, and an
// idle process pays it once.
constexpr auto kLinger = 50us;

// While an operation is in flight the thread must keep looking, but not at the cost of those who do
// the work: after kSpin without anything it naps, as briefly as the kernel can, and after kStalled
// (the peer is stopped, say) for longer.
constexpr auto kSpin = 20us;
constexpr auto kShortNap = 20us;
constexpr auto kStalled = 2ms;
constexpr auto kLongNap = 1ms;

void set_up_thread(const std::string& name) {
    prctl(PR_SET_TIMERSLACK, 1UL);  // naps are shorter than the default slack of 50 us
    pthread_setname_np(pthread_self(), name.c_str());
}

// Signals are for the process's own threads: Python handles them on its main thread.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

}  // namespace

Progress::Progress(Worker& worker, Driver& driver, bool polling, std::string name)
    : worker_(worker),
      driver_(driver),
      polling_(polling),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!epoll_ || !wake_) {
        throw_errno("creating the progress thread's descriptors");
    }
    for (const int fd : {wake_.get(), worker_.event_fd()}) {
        epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
            throw_errno("watching UCX's event descriptor");
        }
    }
    const SignalsBlocked blocked;
    thread_ = std::thread([this, name = std::move(name)] {
        set_up_thread(name);
        run();
    });
}

bool Progress::post(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            return false;
        }
        tasks_.push_back(std::move(task));
        has_tasks_.store(true);
    }
    if (sleeping_.load()) {
        wake();
    }
    return true;
}

bool Progress::post_and_wait(std::function<void()> task) {
    auto done = std::make_shared<std::promise<void>>();
    auto finished = done->get_future();
    if (!post([task = std::move(task), done] {
            task();
            done->set_value();
        })) {
        return false;
    }
    finished.wait();
    return true;
}

void Progress::watch(int fd, std::function<void()> on_event) {
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        throw_errno("watching the control connection");
    }
    watches_.push_back({fd, std::move(on_event)});
}

void Progress::unwatch(int fd) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    std::erase_if(watches_, [fd](const Watch& watch) { return watch.fd == fd; });
}

void Progress::stop() {
    if (!thread_.joinable()) {
        return;
    }
    stop_.store(true);
    wake();
    thread_.join();
}

void Progress::wake() {
    const std::uint64_t one = 1;
    // A full counter is a wake-up already.
    static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
}

bool Progress::run_tasks() {
    if (!has_tasks_.load()) {
        return false;
    }
    std::vector<std::function<void()>> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
        has_tasks_.store(false);
    }
    for (auto& task : tasks) {
        task();
    }
    return true;
}

void Progress::poll_fds(int timeout_ms) {
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == wake_.get()) {
            std::uint64_t value;
            static_cast<void>(!::read(fd, &value, sizeof(value)));
            continue;
        }
        const auto watch = std::ranges::find(watches_, fd, &Watch::fd);
        if (watch != watches_.end()) {
            const auto on_event = watch->on_event;  // which may unwatch itself
            on_event();
        }
    }
}

void Progress::rest(TimePoint now, Clock::duration nap) {
    if (nap > 0us) {
        std::this_thread::sleep_for(nap);
    } else {
        sched_yield();
    }
    const TimePoint after = Clock::now();
    crowding_.rested(after, after - now, nap);
}

void Progress::sleep(TimePoint now, TimePoint until) {
    if (!worker_.arm()) {
        return;
    }
    sleeping_.store(true);
    if (!has_tasks_.load() && !stop_.load()) {
        int timeout_ms = -1;
        if (until != TimePoint::max()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                std::max(until - now, Clock::duration(0)));
            timeout_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
        }
        poll_fds(timeout_ms);
    }
    sleeping_.store(false);
}

void Progress::run() {
    TimePoint next_tick = Clock::now();
    TimePoint last_active = next_tick;
    TimePoint ticked = next_tick;
    while (!stop_.load(std::memory_order_relaxed)) {
        bool active = worker_.progress();
        active |= run_tasks();
        const TimePoint now = Clock::now();
        if (active) {
            last_active = now;
        }
        if (now >= next_tick) {
            poll_fds(0);
            driver_.tick(now);
            next_tick = now + kTick;
            ticked = now;
        }
        if (active) {
            continue;
        }
        const auto idle = now - last_active;
        if (polling_ || idle < kSpin) {
            rest(now, 0us);
        } else if (worker_.in_flight > 0) {
            if (idle < kStalled) {
                rest(now, kShortNap);
            } else {
                sleep(now, now + kLongNap);
                next_tick = now;
            }
        } else if (idle < kLinger) {
            rest(now, 0us);
        } else {
            if (ticked < last_active) {
                next_tick = now;  // what happened last may be for tick() to see to
                continue;
            }
            sleep(now, driver_.deadline());
            next_tick = now;  // look at once: deadlines may have passed meanwhile
            last_active = now;
        }
    }
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    run_tasks();  // none may be lost: somebody may wait for them
}

}  // namespace ucxstore

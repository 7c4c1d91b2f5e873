#include "progress.hpp"

#include "status.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sys/prctl.h>
#include <future>

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// How often descriptors and deadlines are looked at while the thread is busy.
constexpr auto kTick = 1ms;

// How long it looks for more before it sleeps: a reply to a small request comes within it, and an
// idle process pays it once.
constexpr auto kLinger = 50us;

// An operation in flight that has not moved for this long (its peer is stopped, say) is no longer
// worth a core: the thread naps between looks, kNap at a time.
constexpr auto kStalled = 2ms;
constexpr auto kNap = 1ms;

void set_up_thread(const std::string& name) {
    prctl(PR_SET_TIMERSLACK, 1UL);
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

void Progress::sleep(TimePoint now, TimePoint until) {
    if (!worker_.arm()) {
        return;
    }
    sleeping_.store(true);
    if (!has_tasks_.load() && !stop_.load()) {
        int timeout_ms = -1;
        if (until != TimePoint::max()) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(std::max(until - now, Clock::duration(0)));
            timeout_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
        }
        poll_fds(timeout_ms);
    }
    sleeping_.store(false);
}

static int env(const char* n, int d) { const char* v = getenv(n); return v ? atoi(v) : d; }
static void relax(Clock::duration idle) {
  static const int spin_us = env("SPIN_US", 1000000), nap_us = env("NAP_US", 20), pauses = env("PAUSES", 0), yield = env("YIELD", 1);
  if (idle < std::chrono::microseconds(spin_us)) { for (int i = 0; i < pauses; ++i) __builtin_ia32_pause(); if (yield) sched_yield(); }
  else { timespec t{0, nap_us * 1000}; nanosleep(&t, nullptr); } }
void Progress::run() {
    TimePoint next_tick = Clock::now();
    TimePoint last_active = next_tick;
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
        }
        if (active) {
            continue;
        }
        if (polling_) {
            relax(now - last_active);
        } else if (worker_.in_flight > 0) {
            if (now - last_active < kStalled) {
                relax(now - last_active);
            } else {
                sleep(now, now + kNap);
                next_tick = now;
            }
        } else if (now - last_active < kLinger) {
            relax(now - last_active);
        } else {
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

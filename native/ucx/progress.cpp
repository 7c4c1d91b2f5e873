#include "ucx/progress.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/fork.hpp"
#include "base/status.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::ucx {
namespace {

using namespace std::chrono_literals;

// How often a busy thread looks at deadlines, and at descriptors. The latter are also those of
// workers that are armed while another one is busy.
constexpr auto kTick = 1ms;
constexpr auto kPoll = 50us;

// A worker that takes so long when it is driven has the others wait.
constexpr auto kSlow = 200us;

// How long a worker is driven without events before it is armed. Longer than a round trip where
// each hop has to wake a thread: else slow round trips stay slow (90 us instead of 25, with 50 us
// here). Longer than zarr takes between two small reads, so that the second one wakes no thread (a
// row of ten chunks: 0.33 ms instead of 0.39). An idle process pays it once.
constexpr auto kLinger = 600us;

// While an operation is in flight the thread must keep looking, but leave the core to those who do
// the work. After kSpin without events it naps, as briefly as the kernel can; after kStalled (the
// peer is stopped, say) for longer.
constexpr auto kSpin = 20us;
constexpr auto kShortNap = 20us;
constexpr auto kStalled = 2ms;
constexpr auto kLongNap = 1ms;

// How often in a row the descriptor of a worker that is driven may tell of what is not there, until
// it is not listened to: UCX goes on watching a socket whose connection was rejected, and that is
// ready for ever.
constexpr int kMostIdleEvents = 100;

}  // namespace

Progress::Progress(Driver& driver, bool polling, std::string name)
    : driver_(driver), polling_(polling), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) {
        base::throw_errno("creating an epoll instance", base::ErrorKind::resource);
    }
    listen(tasks_.fd());
    thread_ = threads::start_quiet_thread(name, [this] {
        prctl(PR_SET_TIMERSLACK, 1UL);  // naps are shorter than the default slack of 50 us
        run();
    });
}

void Progress::listen(int fd) {
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        base::throw_errno("watching a descriptor", base::ErrorKind::resource);
    }
}

void Progress::watch(int fd, std::function<void()> on_event) {
    bound_.check("Progress::watch");
    watches_.push_back({fd, std::make_shared<std::function<void()>>(std::move(on_event))});
    try {
        listen(fd);
    } catch (...) {
        watches_.pop_back();
        throw;
    }
}

void Progress::unwatch(int fd) {
    bound_.check("Progress::unwatch");
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    std::erase_if(watches_, [fd](const Watch& watch) { return watch.fd == fd; });
}

void Progress::add(Worker& worker) {
    bound_.check("Progress::add");
    driven_.push_back({&worker, base::Clock::now(), false});
    try {
        listen(worker.event_fd());
    } catch (...) {
        driven_.pop_back();
        throw;
    }
}

void Progress::remove(Worker& worker) {
    bound_.check("Progress::remove");
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, worker.event_fd(), nullptr);
    std::erase_if(driven_, [&worker](const Driven& one) { return one.worker == &worker; });
}

void Progress::hear(const Driven& one, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = one.worker->event_fd()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

void Progress::listen_again(Driven& one) {
    if (std::exchange(one.idle_events, 0) >= kMostIdleEvents) {
        hear(one, EPOLLIN);
    }
}

bool Progress::retire(std::unique_ptr<Worker>& worker, bool overdue) {
    if (worker->busy() && !overdue) {
        return false;
    }
    remove(*worker);
    if (worker->busy()) {
        Worker::leak(std::move(worker));  // UCX may still write to what its operations own
    }
    worker.reset();
    return true;
}

void Progress::set_work(std::function<bool()> work) {
    bound_.check("Progress::set_work");
    work_ = std::move(work);
}

void Progress::stop() {
    if (!thread_.joinable()) {
        return;
    }
    stop_.store(true);
    tasks_.wake();
    thread_.join();
}

void Progress::poll_fds(int timeout_ms) {
    std::array<epoll_event, 16> events;
    const int count = [&] {
        const base::OutOfUcx outside;
        return epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    }();
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == tasks_.fd()) {
            tasks_.clear_wake();
            continue;
        }
        const auto driven = std::ranges::find(
            driven_, fd, [](const Driven& one) { return one.worker->event_fd(); });
        if (driven != driven_.end()) {
            // One that is not armed is driven anyway. Its events may last until arm() takes them
            // in, so they must not put that off.
            if (std::exchange(driven->armed, false)) {
                driven->last_active = base::Clock::now();
            } else if (++driven->idle_events == kMostIdleEvents) {
                hear(*driven, 0);
            }
            continue;
        }
        const auto watch = std::ranges::find(watches_, fd, &Watch::fd);
        if (watch != watches_.end()) {
            const auto on_event = watch->on_event;  // which may unwatch itself
            guarded(driver_, *on_event);
            heard_ = true;
        }
    }
}

void Progress::rest(base::TimePoint now, base::Clock::duration nap) {
    {
        const base::OutOfUcx outside;
        if (nap > 0us) {
            std::this_thread::sleep_for(nap);
        } else {
            sched_yield();
        }
    }
    const base::TimePoint after = base::Clock::now();
    crowding_.rested(after, after - now, nap);
}

void Progress::sleep(base::TimePoint now, base::TimePoint until) {
    tasks_.begin_sleep();
    if (tasks_.empty() && !stop_.load()) {
        int timeout_ms = -1;
        if (until != base::TimePoint::max()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                until <= now ? base::Clock::duration(0) : until - now);
            timeout_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
        }
        poll_fds(timeout_ms);
    }
    tasks_.end_sleep();
}

bool Progress::drive(base::TimePoint now) {
    bool active = false;
    base::TimePoint begun = now;
    for (Driven& one : driven_) {
        if (!drive(one, now)) {
            continue;
        }
        active = true;
        one.is_slow = base::Clock::now() - begun >= kSlow;
        if (one.is_slow) {
            active |= drive_others();
        }
        begun = base::Clock::now();
    }
    return active;
}

bool Progress::drive(Driven& one, base::TimePoint round) {
    if (one.armed && !one.worker->used) {
        return false;
    }
    one.worker->round = round;
    const bool active = one.worker->progress() || one.worker->used;
    if (active) {
        one.last_active = round;
        one.armed = false;
        listen_again(one);
    }
    one.worker->used = false;
    return active;
}

// Those with much to do come after each of those with little, and not the other way round.
bool Progress::drive_others() {
    bool active = false;
    poll_fds(0);
    const base::TimePoint now = base::Clock::now();
    for (Driven& one : driven_) {
        active |= !one.is_slow && drive(one, now);
    }
    return active;
}

bool Progress::any_busy() const {
    return std::ranges::any_of(driven_, [](const Driven& one) { return one.worker->busy(); });
}

bool Progress::arm_idle(base::TimePoint now) {
    bool all = true;
    for (Driven& one : driven_) {
        if (!one.armed && !one.worker->busy() && now - one.last_active >= kLinger) {
            listen_again(one);
            one.armed = one.worker->arm();
            // A device of verbs tells of what comes after it was asked to. Without another look,
            // what came since the last one would wait for UCX's keepalive: up to 20 s.
            if (one.armed && one.worker->progress()) {
                one.armed = false;
                one.worker->used = true;
            }
        }
        all = all && one.armed;
    }
    return all;
}

void Progress::wait_longer(base::TimePoint now, base::Clock::duration idle, bool all_armed) {
    if (polls() || idle < kSpin) {
        rest(now, 0us);
    } else if (all_armed) {
        sleep(now, driver_.deadline());
    } else if (any_busy()) {
        if (idle < kStalled) {
            rest(now, kShortNap);
        } else {
            sleep(now, now + kLongNap);  // the others, and tasks, wake it
        }
    } else {
        rest(now, 0us);
    }
}

void Progress::run() {
    bound_.bind();
    base::TimePoint now = base::Clock::now();
    base::TimePoint next_tick = now;
    base::TimePoint next_poll = now;
    base::TimePoint last_active = now;
    base::TimePoint ticked = now;
    const base::InUcx inside;
    while (!stop_.load(std::memory_order_relaxed)) {
        base::let_fork();
        bool active = tasks_.run(driver_);
        active |= drive(now);
        now = base::Clock::now();
        if (active) {
            last_active = now;
        }
        if (now >= next_poll) {
            poll_fds(0);
            next_poll = now + kPoll;
        }
        if (std::exchange(heard_, false)) {
            next_tick = now;  // it may be what tick() must act on, and nothing may wake us later
        }
        if (now >= next_tick) {
            guarded(driver_, [&] { driver_.tick(now); });
            next_tick = now + kTick;
            ticked = now;
        }
        if (work_) {  // after all that may give it something to do
            bool worked = false;
            guarded(driver_, [&] { worked = work_(); });
            if (worked) {
                active = true;
                last_active = now;
            }
        }
        if (active) {
            continue;
        }
        const bool all_armed = !polls() && arm_idle(now);
        if (all_armed && ticked < last_active) {
            next_tick = now;  // the last event may be one that tick() must act on
            continue;
        }
        wait_longer(now, now - last_active, all_armed);
        now = base::Clock::now();
        if (all_armed) {
            next_tick = now;  // look at once: deadlines may have passed meanwhile
        }
    }
    tasks_.close(driver_);
}

}  // namespace ucxstore::ucx

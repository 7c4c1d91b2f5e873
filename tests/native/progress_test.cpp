#include "ucx/progress.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/handle.hpp"
#include "support.hpp"
#include "ucx/context.hpp"
#include "ucx/worker.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

// Ticks are counted; the deadline is one moment, then never.
class Counting : public Progress::Driver {
  public:
    std::atomic<int> ticks = 0;
    std::atomic<int> failures = 0;
    std::atomic<bool> tick_fails = false;
    std::atomic<Clock::rep> due{TimePoint::max().time_since_epoch().count()};

  private:
    void failed(const char*) noexcept override { ++failures; }
    void tick(TimePoint now) override {
        ++ticks;
        if (tick_fails.exchange(false)) {
            throw std::bad_alloc();
        }
        if (now.time_since_epoch().count() >= due) {
            due = TimePoint::max().time_since_epoch().count();
        }
    }
    TimePoint deadline() const override { return TimePoint(Clock::duration(due)); }
};

class ProgressTest : public testing::TestWithParam<bool> {
  protected:
    Counting driver_;
    Progress progress_{driver_, GetParam(), "test"};
};

INSTANTIATE_TEST_SUITE_P(All, ProgressTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Polling" : "Sleeping"; });

TEST_P(ProgressTest, RunsTasksInOrderOnOneThread) {
    std::vector<int> order;
    std::thread::id first;
    progress_.post([&] { first = std::this_thread::get_id(); });
    for (int i = 0; i < 100; ++i) {
        progress_.post([&, i] { order.push_back(i); });
    }
    bool same = false;
    ASSERT_TRUE(progress_.post_and_wait([&] { same = first == std::this_thread::get_id(); }));
    EXPECT_TRUE(same);
    EXPECT_NE(first, std::this_thread::get_id());
    ASSERT_EQ(order.size(), 100u);
    EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_P(ProgressTest, LosesNoTaskOfAnyThread) {
    std::atomic<int> ran = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (int i = 0; i < 300; ++i) {
                if (i % 3 == 0) {
                    progress_.post_and_wait([&] { ++ran; });
                } else {
                    progress_.post([&] { ++ran; });
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(progress_.post_and_wait([] {}));
    EXPECT_EQ(ran, 1200);
}

TEST_P(ProgressTest, OutlivesWhatFailsOnIt) {
    progress_.post([] { throw std::bad_alloc(); });
    EXPECT_TRUE(eventually([&] { return driver_.failures == 1; }));
    driver_.tick_fails = true;
    progress_.post([] {});
    EXPECT_TRUE(eventually([&] { return driver_.failures == 2; }));
    EXPECT_THROW(progress_.post_and_wait([] { throw std::bad_alloc(); }), std::bad_alloc);
    EXPECT_EQ(driver_.failures, 2) << "whoever waits is told instead";
    EXPECT_TRUE(progress_.post_and_wait([] {}));
}

TEST_P(ProgressTest, TakesNoTaskOnceStoppedAndLosesNoneBefore) {
    std::atomic<int> accepted = 0;
    std::atomic<int> ran = 0;
    std::thread poster([&] {
        while (progress_.post([&] { ++ran; })) {
            ++accepted;
        }
    });
    ASSERT_TRUE(eventually([&] { return ran > 100; }));
    progress_.stop();
    poster.join();
    EXPECT_EQ(ran, accepted);
    EXPECT_FALSE(progress_.post_and_wait([] {}));
    progress_.stop();
}

TEST_P(ProgressTest, TicksByItsDeadline) {
    driver_.due = (Clock::now() + 30ms).time_since_epoch().count();
    progress_.post([] {});  // a sleeper looks at the deadline before it sleeps again
    EXPECT_TRUE(
        eventually([&] { return driver_.due == TimePoint::max().time_since_epoch().count(); }));
    EXPECT_GE(driver_.ticks, 1);
}

// However soon it then sleeps: nothing else may wake it.
// A thread that is awake ticks each millisecond.
TEST_P(ProgressTest, SleepsWhileItHasNoWorker) {
    const auto sleeps = [&] {
        const int before = driver_.ticks;
        std::this_thread::sleep_for(100ms);
        return driver_.ticks == before;
    };
    EXPECT_TRUE(eventually(sleeps));
    std::unique_ptr<Worker> worker;
    ASSERT_TRUE(progress_.post_and_wait([&] {
        worker = std::make_unique<Worker>(std::make_shared<const Context>(Options{{"TLS", "tcp"}}));
        progress_.add(*worker);
    }));
    if (GetParam()) {
        EXPECT_FALSE(sleeps());
    } else {
        EXPECT_TRUE(eventually(sleeps));
    }
    ASSERT_TRUE(progress_.post_and_wait([&] { EXPECT_TRUE(progress_.retire(worker, true)); }));
    EXPECT_TRUE(eventually(sleeps));
}

TEST_P(ProgressTest, TicksAfterAWatchHasCalled) {
    std::unique_ptr<Worker> worker;
    const Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    std::atomic<int> calls = 0;
    std::atomic<int> ticks_before = 0;
    ASSERT_TRUE(progress_.post_and_wait([&] {
        worker = std::make_unique<Worker>(std::make_shared<const Context>(Options{{"TLS", "tcp"}}));
        progress_.add(*worker);  // which is driven for a while after each task, and then armed
        progress_.watch(fd.get(), [&] {
            eventfd_t count = 0;
            eventfd_read(fd.get(), &count);
            ticks_before = driver_.ticks.load();
            ++calls;
        });
    }));
    for (int round = 1; round <= 400; ++round) {
        progress_.post([worker = worker.get()] { worker->used = true; });
        const TimePoint until = Clock::now() + 450us + round * 1us;
        while (Clock::now() < until) {
            std::this_thread::yield();
        }
        eventfd_write(fd.get(), 1);
        ASSERT_TRUE(eventually([&] { return calls == round && driver_.ticks > ticks_before; }))
            << "in round " << round;
    }
    ASSERT_TRUE(progress_.post_and_wait([&] {
        progress_.unwatch(fd.get());
        EXPECT_TRUE(progress_.retire(worker, true));
    }));
}

}  // namespace
}  // namespace ucxstore::test

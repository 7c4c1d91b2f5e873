#include "threads/worker_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "support.hpp"

namespace ucxstore::test {
namespace {

// Tasks wait here until they are let go.
class Barrier {
  public:
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        opened_.notify_all();
    }
    void pass() {
        std::unique_lock lock(mutex_);
        ++waiting;
        opened_.wait(lock, [this] { return open_; });
    }
    std::atomic<int> waiting = 0;

  private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = false;
};

TEST(WorkerPool, RunsAllThatIsPosted) {
    WorkerPool pool;
    std::atomic<int> run = 0;
    for (int i = 0; i < 1000; ++i) {
        pool.post([&] { ++run; });
    }
    EXPECT_TRUE(pool.settle(kPatience));
    EXPECT_EQ(run, 1000);
    EXPECT_TRUE(pool.settle(std::chrono::milliseconds(0)));
}

TEST(WorkerPool, HasSoManyThreadsAndNoMore) {
    WorkerPool pool;
    Barrier gate;
    for (int i = 0; i < 3 * WorkerPool::kMostThreads; ++i) {
        pool.post([&] { gate.pass(); });
    }
    EXPECT_TRUE(eventually([&] { return gate.waiting == WorkerPool::kMostThreads; }));
    EXPECT_FALSE(pool.settle(std::chrono::milliseconds(50)));
    EXPECT_EQ(gate.waiting, WorkerPool::kMostThreads);
    gate.open();
    EXPECT_TRUE(pool.settle(kPatience));
    EXPECT_EQ(gate.waiting, 3 * WorkerPool::kMostThreads);
}

// Sets a flag as its thread ends.
struct AtExit {
    ~AtExit() {
        if (flag != nullptr) {
            *flag = true;
        }
    }
    std::atomic<bool>* flag = nullptr;
};
thread_local AtExit at_exit;

TEST(WorkerPool, AThreadThatWorksAsThePoolGoesEndsWithItsTask) {
    Barrier gate;
    std::atomic<bool> ended = false;
    {
        WorkerPool pool;
        pool.post([&] {
            at_exit.flag = &ended;
            gate.pass();
        });
        ASSERT_TRUE(eventually([&] { return gate.waiting == 1; }));
    }
    gate.open();
    EXPECT_TRUE(eventually([&] { return ended.load(); }, std::chrono::seconds(5)));
}

TEST(WorkerPool, RunsWhatIsFirstFirst) {
    WorkerPool pool;
    Barrier gate;
    for (int i = 0; i < WorkerPool::kMostThreads; ++i) {
        pool.post([&] { gate.pass(); });
    }
    std::mutex mutex;
    std::vector<int> order;
    const auto note = [&](int number) {
        return [&, number] {
            const std::lock_guard lock(mutex);
            order.push_back(number);
        };
    };
    Barrier last;
    // One thread runs the rest.
    for (int i = 1; i < WorkerPool::kMostThreads; ++i) {
        pool.post_first([&] { last.pass(); });
    }
    pool.post(note(2));
    pool.post(note(3));
    pool.post_first(note(1));
    gate.open();
    EXPECT_TRUE(eventually([&] {
        const std::lock_guard lock(mutex);
        return order.size() == 3;
    }));
    last.open();
    EXPECT_TRUE(pool.settle(kPatience));
    EXPECT_EQ(order.front(), 1);
}

TEST(WorkerPool, OneThatHasNothingRunningNeedNotWaitForOthers) {
    WorkerPool pool;
    Barrier gate;
    for (int i = 0; i < 1000; ++i) {
        pool.post([&] { gate.pass(); }, {"greedy", 1});
    }
    EXPECT_TRUE(eventually([&] { return gate.waiting == WorkerPool::kMostThreads; }));
    std::atomic<int> run = 0;
    pool.post([&] { ++run; }, {"honest", 2});
    EXPECT_TRUE(eventually([&] { return run == 1; }));
    pool.post([&] { gate.pass(); }, {"honest", 2});
    EXPECT_TRUE(eventually([&] { return gate.waiting == WorkerPool::kMostThreads + 1; }));
    pool.post([&] { ++run; }, {"greedy", 3});
    EXPECT_TRUE(eventually([&] { return run == 2; }));
    EXPECT_EQ(gate.waiting, WorkerPool::kMostThreads + 1);
    gate.open();
    EXPECT_TRUE(pool.settle(kPatience));
    EXPECT_EQ(gate.waiting, 1001);
}

// So often a thread of this process has gone to sleep.
long sleeps_of(pid_t thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    const std::string wanted = "voluntary_ctxt_switches:";
    std::string word;
    long count = -1;
    while (status >> word && word != wanted) {
    }
    status >> count;
    return count;
}

TEST(WorkerPool, WakesNobodyForWhatHeMayNotDo) {
    WorkerPool pool(1, 1);
    Barrier of_one;
    std::atomic<pid_t> spare = 0;
    pool.post([&] { of_one.pass(); }, {"one", 1});
    EXPECT_TRUE(eventually([&] { return of_one.waiting == 1; }));
    pool.post([&] { spare = gettid(); }, {"other", 2});
    EXPECT_TRUE(eventually([&] { return spare != 0; }));
    long before = -1;
    EXPECT_TRUE(
        eventually([&] { return sleeps_of(spare) == std::exchange(before, sleeps_of(spare)); }));
    std::atomic<int> run = 0;
    for (int i = 0; i < 100; ++i) {
        pool.post([&] { ++run; }, {"one", 1});
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LE(sleeps_of(spare), before + 2);
    EXPECT_EQ(run, 0);
    of_one.open();
    EXPECT_TRUE(pool.settle(kPatience));
    EXPECT_EQ(run, 100);
}

// This thread's niceness.
int niceness() { return getpriority(PRIO_PROCESS, 0); }

TEST(WorkerPool, ItsThreadsGetLessThanOthersIfTheyAreTo) {
    WorkerPool equal;
    WorkerPool less(1, 0, "less", Priority::low);
    std::atomic<int> of_equal = -1;
    std::atomic<int> of_less = -1;
    equal.post([&] { of_equal = niceness(); });
    less.post([&] { of_less = niceness(); });
    EXPECT_TRUE(equal.settle(kPatience));
    EXPECT_TRUE(less.settle(kPatience));
    EXPECT_EQ(of_equal, niceness());
    EXPECT_GT(of_less, niceness());
}

TEST(WorkerPool, RunsWhatWasPostedWhenItIsGone) {
    std::atomic<int> run = 0;
    {
        WorkerPool pool;
        for (int i = 0; i < 100; ++i) {
            pool.post([&] { ++run; });
        }
    }
    EXPECT_TRUE(eventually([&] { return run == 100; }));
}

}  // namespace
}  // namespace ucxstore::test

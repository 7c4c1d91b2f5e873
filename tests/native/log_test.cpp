// Events on their way to Python's loggers.
#include "base/log.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace ucxstore::base::log {
namespace {

Event event_of(std::uint64_t number) {
    return {.area = Area::client,
            .level = info,
            .kind = EventKind::slow_request,
            .peer = "host:1",
            .key = "a/c/0",
            .count = number,
            .bytes = 2 * number};
}

bool is_readable(int fd) {
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&one, 1, 0) == 1;
}

TEST(LogQueue, KeepsTheOrderAndTheTexts) {
    Queue queue(8);
    EXPECT_FALSE(is_readable(queue.fd()));
    queue.push(event_of(1));
    queue.push(event_of(2));
    EXPECT_TRUE(is_readable(queue.fd()));
    const auto taken = queue.take();
    ASSERT_EQ(taken.records.size(), 2u);
    EXPECT_EQ(taken.records[0].count, 1u);
    EXPECT_EQ(taken.records[1].bytes, 4u);
    EXPECT_EQ(taken.records[1].peer.view(), "host:1");
    EXPECT_EQ(taken.records[1].key.view(), "a/c/0");
    EXPECT_EQ(taken.records[1].detail.view(), "");
    EXPECT_EQ(taken.dropped, 0u);
    EXPECT_FALSE(is_readable(queue.fd()));
    EXPECT_TRUE(queue.take().records.empty());
}

TEST(LogQueue, CountsWhatItDrops) {
    Queue queue(3);
    for (std::uint64_t i = 0; i < 10; ++i) {
        queue.push(event_of(i));
    }
    EXPECT_EQ(queue.take().dropped, 7u);
    queue.push(event_of(0));
    const auto taken = queue.take();
    EXPECT_EQ(taken.dropped, 0u);
    EXPECT_EQ(taken.records.size(), 1u);
}

Event request_of(std::uint64_t number) {
    Event event = event_of(number);
    event.kind = EventKind::request;
    return event;
}

TEST(LogQueue, LeavesAQuarterToOtherEvents) {
    Queue queue(8);
    for (std::uint64_t i = 0; i < 10; ++i) {
        queue.push(request_of(i));
    }
    queue.push(event_of(10));
    queue.count_dropped();
    const auto taken = queue.take();
    EXPECT_EQ(taken.records.size(), 7u);
    EXPECT_EQ(taken.records.back().count, 10u);
    EXPECT_EQ(taken.dropped, 5u);
}

TEST(LogQueue, CutsLongTexts) {
    Queue queue(1);
    const std::string key(5000, 'k');
    queue.push({.area = Area::server, .level = warning, .kind = EventKind::lost, .key = key});
    EXPECT_EQ(queue.take().records.at(0).key.view(), key.substr(0, 256));
}

class LogQueueOfThreads : public testing::TestWithParam<EventKind> {};

INSTANTIATE_TEST_SUITE_P(All, LogQueueOfThreads,
                         testing::Values(EventKind::slow_request, EventKind::request));

TEST_P(LogQueueOfThreads, LosesNothingUncounted) {
    constexpr std::uint64_t kThreads = 4;
    constexpr std::uint64_t kEach = 2000;
    Queue queue(64);
    std::atomic<std::uint64_t> running = kThreads;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (std::uint64_t number = 0; number < kEach; ++number) {
                Event event = event_of(number);
                event.kind = GetParam();
                queue.push(event);
            }
            --running;
        });
    }
    std::uint64_t seen = 0;
    bool last = false;
    while (!last) {
        last = running == 0;
        const auto taken = queue.take();
        for (const Record& record : taken.records) {
            EXPECT_EQ(record.bytes, 2 * record.count);
        }
        seen += taken.records.size() + taken.dropped;
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(seen, kThreads * kEach);
}

class Log : public testing::Test {
  protected:
    ~Log() override {
        listen(off, off);
        queue().take();
    }
};

TEST_F(Log, WantsNothingUntilSomebodyListens) {
    EXPECT_FALSE(wants(Area::client, warning));
    add(event_of(1));
    EXPECT_TRUE(queue().take().records.empty());
    listen(info, off);
    EXPECT_TRUE(wants(Area::client, info));
    EXPECT_FALSE(wants(Area::client, debug));
    EXPECT_FALSE(wants(Area::server, warning));
    add(event_of(1));
    EXPECT_EQ(queue().take().records.size(), 1u);
}

TEST_F(Log, ReportsManyEvictionsAsOne) {
    listen(off, info);
    {
        Evictions evictions("the cache");
        for (int i = 0; i < 100; ++i) {
            evictions.add(10);
        }
        const auto first = queue().take();
        ASSERT_EQ(first.records.size(), 1u);  // the first one, at once
        EXPECT_EQ(first.records[0].count, 1u);
    }
    const auto rest = queue().take();
    ASSERT_EQ(rest.records.size(), 1u);
    EXPECT_EQ(rest.records[0].count, 99u);
    EXPECT_EQ(rest.records[0].bytes, 990u);
}

TEST_F(Log, LeavesTheQueueToTheParent) {
    listen(debug, debug);
    add(event_of(1));
    const int fd = queue().fd();
    const pid_t child = fork();
    if (child == 0) {
        forget_in_child();
        const bool silent = !wants(Area::client, warning);
        const bool own = queue().fd() != fd && queue().take().records.empty();
        _exit(silent && own ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(queue().take().records.size(), 1u);
}

}  // namespace
}  // namespace ucxstore::base::log

#include "client/operation.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <thread>

#include "memory/result_memory.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

bool readable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) == 1;
}

std::shared_ptr<Operation> make(std::size_t items = 1, double timeout_s = 60,
                                std::shared_ptr<CompletionQueue> queue = nullptr) {
    return std::make_shared<Operation>(std::vector<Item>(items), timeout_s, std::move(queue));
}

TEST(CompletionQueue, IsReadableWhileSomethingIsInIt) {
    CompletionQueue queue;
    EXPECT_FALSE(readable(queue.fd()));
    queue.push(7);
    queue.push(8);
    EXPECT_TRUE(readable(queue.fd()));
    EXPECT_EQ(queue.drain(), (std::vector<std::uint64_t>{7, 8}));
    EXPECT_FALSE(readable(queue.fd()));
    EXPECT_TRUE(queue.drain().empty());
    queue.push(9);
    EXPECT_TRUE(readable(queue.fd()));
}

TEST(CompletionQueue, LosesNothingBetweenThreads) {
    constexpr std::uint64_t kThreads = 4;
    constexpr std::uint64_t kEach = 2000;
    CompletionQueue queue;
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&queue, thread] {
            for (std::uint64_t i = 0; i < kEach; ++i) {
                queue.push(thread * kEach + i);
            }
        });
    }
    std::vector<std::uint64_t> got;
    while (got.size() < kThreads * kEach) {
        pollfd entry{.fd = queue.fd(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(poll(&entry, 1, 30'000), 1)
            << "ids are there, and the descriptor is not readable";
        const auto ids = queue.drain();
        got.insert(got.end(), ids.begin(), ids.end());
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::ranges::sort(got);
    for (std::uint64_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], i);
    }
}

// Else a child that is forked at once has the mapped values of its parent's until it ends: there,
// the thread that completes this never goes on.
TEST(Operation, HasNothingOfItsResultOnceItIsDone) {
    const auto result = std::make_shared<ResultMemory>(1 << 20);
    const auto operation = make();
    operation->result = result;
    operation->complete();
    EXPECT_TRUE(operation->done());
    EXPECT_EQ(result.use_count(), 1);
    const auto late = make();
    late->result = result;
    late->complete(true);
    EXPECT_EQ(result.use_count(), 2) << "what is still written to is kept";
}

TEST(Operation, IdsDiffer) { EXPECT_NE(make()->id, make()->id); }

TEST(Operation, IsWaitedForByAnotherThread) {
    const auto operation = make();
    EXPECT_FALSE(operation->done());
    EXPECT_FALSE(operation->wait_for(1ms));
    std::thread thread([operation] { operation->complete(); });
    EXPECT_TRUE(operation->wait_for(kPatience));
    thread.join();
    EXPECT_TRUE(operation->done());
    EXPECT_FALSE(operation->leaked());
    EXPECT_NO_THROW(operation->check());
}

TEST(Operation, TellsItsQueue) {
    const auto queue = std::make_shared<CompletionQueue>();
    const auto operation = make(1, 60, queue);
    operation->complete();
    EXPECT_EQ(queue->drain(), std::vector<std::uint64_t>{operation->id});
}

TEST(Operation, KeepsTheFirstFailure) {
    const auto operation = make();
    operation->fail(ErrorKind::timeout, "first");
    operation->fail(ErrorKind::protocol, "second");
    operation->complete(true);
    EXPECT_TRUE(operation->leaked());
    try {
        operation->check();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::timeout);
        EXPECT_STREQ(error.what(), "first");
    }
}

TEST(Operation, AChangeThatWasSentSaysThatItMayHaveBeenMade) {
    const auto kind_of = [](ErrorKind kind, bool removes, bool sent) {
        const auto operation = make();
        operation->items[0].key = "the key";
        operation->removes = removes;
        if (!sent) {
            operation->requests.emplace_back();
        }
        operation->fail(kind, "why");
        operation->complete();
        try {
            operation->check();
        } catch (const Error& error) {
            const bool named = std::string(error.what()).find("'the key'") != std::string::npos;
            EXPECT_EQ(named, error.kind() != kind);
            return error.kind();
        }
        return ErrorKind::argument;
    };
    EXPECT_EQ(kind_of(ErrorKind::server_lost, true, true), ErrorKind::change_lost);
    EXPECT_EQ(kind_of(ErrorKind::timeout, true, true), ErrorKind::change_timeout);
    EXPECT_EQ(kind_of(ErrorKind::server_lost, true, false), ErrorKind::server_lost);
    EXPECT_EQ(kind_of(ErrorKind::server_lost, false, true), ErrorKind::server_lost);
    EXPECT_EQ(kind_of(ErrorKind::protocol, true, true), ErrorKind::protocol);
}

TEST(Operation, IsDoneWithItsLastItem) {
    const auto operation = make(3);
    EXPECT_FALSE(operation->item_done(operation->items[2]));
    EXPECT_FALSE(operation->item_done(operation->items[0]));
    EXPECT_TRUE(operation->item_done(operation->items[1]));
}

TEST(Operation, ADeadlineIsRenewedByEveryMove) {
    const auto operation = make(1, 5);
    const TimePoint now = Clock::now() + 100s;
    operation->moved(now);
    EXPECT_EQ(operation->deadline(), now + 5s);
}

TEST(Operation, TakesAnyTimeout) {
    for (const double timeout : {0.0, -1.0, 1e300, std::numeric_limits<double>::infinity()}) {
        const auto operation = make(1, timeout);
        if (timeout > 0) {
            EXPECT_GT(operation->deadline(), Clock::now() + 1000s) << timeout;
        } else {
            EXPECT_LE(operation->deadline(), Clock::now()) << timeout;
        }
    }
}

}  // namespace
}  // namespace ucxstore::test

// The queue of worker pools: turns among origins, and among the sessions of each.
#include "base/fair_queue.hpp"

#include <gtest/gtest.h>

#include <string>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

// Takes all, each as if it had used so much, and returns the first letters in that order.
std::string order_of(FairQueue<char>& queue, FairQueue<char>::Time used = 1ms) {
    std::string order;
    while (auto taken = queue.take()) {
        order += taken->item;
        queue.end(taken->whose, used);
    }
    return order;
}

TEST(FairQueue, KeepsTheOrderOfASession) {
    FairQueue<char> queue;
    for (const char each : std::string("bcd")) {
        queue.push({"origin", 1}, each);
    }
    queue.push_first({"origin", 1}, 'a');
    EXPECT_EQ(queue.size(), 4u);
    EXPECT_EQ(order_of(queue), "abcd");
    EXPECT_TRUE(queue.empty());
    EXPECT_FALSE(queue.take());
}

TEST(FairQueue, OriginsTakeTurnsHoweverManySessionsTheyHave) {
    FairQueue<char> queue;
    for (std::uint64_t session = 1; session <= 6; ++session) {
        queue.push({"greedy", session}, 'g');
    }
    for (int i = 0; i < 3; ++i) {
        queue.push({"honest", 7}, 'h');
    }
    const std::string order = order_of(queue);
    EXPECT_EQ(order.substr(0, 6).find("gg"), std::string::npos);
    EXPECT_EQ(order.substr(0, 6).find("hh"), std::string::npos);
    EXPECT_EQ(order.substr(6), "ggg");
}

TEST(FairQueue, SessionsOfAnOriginTakeTurns) {
    FairQueue<char> queue;
    for (int i = 0; i < 1000; ++i) {
        queue.push({"host", 1}, 'g');
    }
    queue.push({"host", 2}, 'h');
    EXPECT_LE(order_of(queue).find('h'), 1u);
}

TEST(FairQueue, WhoHasUsedLeastComesFirst) {
    FairQueue<char> queue;
    for (int i = 0; i < 10; ++i) {
        queue.push({"slow", 1}, 's');
        queue.push({"fast", 2}, 'f');
    }
    std::string order;
    while (auto taken = queue.take()) {
        order += taken->item;
        queue.end(taken->whose, taken->item == 's' ? 10ms : 1ms);
    }
    EXPECT_GE(order.find("ffffffff"), 1u);
    EXPECT_LE(order.find("ffffffff"), 3u);
}

TEST(FairQueue, NobodySavesTurnsUp) {
    FairQueue<char> queue;
    queue.push({"idle", 1}, 'i');
    for (int i = 0; i < 100; ++i) {
        queue.push({"busy", 2}, 'b');
    }
    const std::string first = order_of(queue).substr(0, 2);
    EXPECT_NE(first.find('i'), std::string::npos);
    for (int i = 0; i < 100; ++i) {
        queue.push({"busy", 2}, 'b');
    }
    std::string order;
    for (int i = 0; i < 50; ++i) {
        const auto taken = queue.take();
        queue.end(taken->whose, 1ms);
    }
    for (int i = 0; i < 50; ++i) {
        queue.push({"idle", 1}, 'i');
    }
    EXPECT_EQ(order_of(queue).substr(0, 20).find("iii"), std::string::npos);
}

TEST(FairQueue, WhatRunsCountsForItsOriginBeforeItHasEnded) {
    FairQueue<char> queue;
    for (int i = 0; i < 4; ++i) {
        queue.push({"one", 1}, '1');
    }
    const auto first = queue.take();
    queue.push({"other", 2}, '2');
    const auto second = queue.take();
    EXPECT_EQ(second->item, '2');
    EXPECT_EQ(queue.take()->item, '1');
    queue.push({"third", 3}, '3');
    queue.push({"one", 4}, '4');
    EXPECT_EQ(queue.take(Next::idle_origins)->item, '3');
    EXPECT_FALSE(queue.has(Next::idle_origins));
    EXPECT_TRUE(queue.has(Next::idle_sessions));
    EXPECT_EQ(queue.take(Next::idle_sessions)->item, '4');
    EXPECT_FALSE(queue.take(Next::idle_sessions));
    EXPECT_EQ(queue.take()->item, '1');
}

TEST(FairQueue, TakesBackWhatCameLast) {
    FairQueue<char> queue;
    queue.push({"one", 1}, 'a');
    queue.push({"one", 1}, 'b');
    EXPECT_EQ(queue.pop_last({"one", 1}), 'b');
    EXPECT_EQ(order_of(queue), "a");
}

}  // namespace
}  // namespace ucxstore::test

// Accounts of sessions and origins: what is held, its limits, and what counts for memory.
#include "sessions/account.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "protocol/wire.hpp"
#include "rooms.hpp"
#include "storage/quota.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kStep = 16ull << 10;
constexpr auto kBytes = Held::reply_bytes;

Limits limits_of(std::uint64_t always, std::uint64_t session, std::uint64_t origin,
                 std::uint64_t all) {
    Limits limits = kLimits;
    Limit& one = limits[static_cast<std::size_t>(kBytes)];
    one = {one.name,       one.what,        true,           true,
           always * kStep, session * kStep, origin * kStep, all * kStep};
    return limits;
}

TEST(AccountTest, WhatIsHeldIsGivenBack) {
    const auto ledger = std::make_shared<Ledger>();
    const auto account = ledger->open("a");
    {
        auto hold = account->hold(kBytes, 1000);
        ASSERT_TRUE(hold);
        EXPECT_EQ(account->held(kBytes), 1000u);
        hold->shrink(300);
        EXPECT_EQ(ledger->held(kBytes), 300u);
        const Hold moved = std::move(*hold);
        EXPECT_EQ(moved.amount(), 300u);
        EXPECT_EQ(account->held(kBytes), 300u);
    }
    EXPECT_EQ(account->held(kBytes), 0u);
}

TEST(AccountTest, ASessionHasALimit) {
    const auto ledger = std::make_shared<Ledger>(nullptr, limits_of(0, 4, 100, 1000));
    const auto account = ledger->open("a");
    const auto most = account->hold(kBytes, 4 * kStep);
    EXPECT_TRUE(most);
    EXPECT_TRUE(account->is_full(kBytes));
    EXPECT_FALSE(account->hold(kBytes, 1));
    EXPECT_EQ(account->held(kBytes), 4 * kStep);
    const Hold more = account->hold_anyway(kBytes, kStep);
    EXPECT_EQ(account->held(kBytes), 5 * kStep);
    EXPECT_TRUE(ledger->open("a")->hold(kBytes, 1));
}

TEST(AccountTest, SessionsOfAnOriginShareItsLimit) {
    const auto ledger = std::make_shared<Ledger>(nullptr, limits_of(2, 8, 10, 1000));
    const auto one = ledger->open("a");
    const auto other = ledger->open("a");
    EXPECT_TRUE(one->add(kBytes, 8 * kStep));
    EXPECT_TRUE(other->add(kBytes, 4 * kStep));
    EXPECT_FALSE(other->add(kBytes, kStep));
    EXPECT_TRUE(ledger->open("a")->add(kBytes, 2 * kStep)) << "so much each has in any case";
    EXPECT_TRUE(ledger->open("b")->add(kBytes, 8 * kStep));
    one->remove(kBytes, 4 * kStep);
    EXPECT_TRUE(other->add(kBytes, kStep));
}

TEST(AccountTest, OneOriginDoesNotKeepTheOthersOut) {
    const auto ledger = std::make_shared<Ledger>(nullptr, limits_of(0, 1000, 1000, 80));
    const auto greedy = ledger->open("greedy");
    EXPECT_TRUE(greedy->add(kBytes, 70 * kStep));
    EXPECT_FALSE(greedy->add(kBytes, 2 * kStep)) << "an eighth is kept";
    const auto other = ledger->open("other");
    EXPECT_TRUE(other->add(kBytes, 10 * kStep));
    EXPECT_FALSE(other->add(kBytes, 2 * kStep));
}

TEST(AccountTest, WhatIsHeldCountsForMemory) {
    const auto memory = std::make_shared<Quota>(100 * kStep);
    const auto ledger = std::make_shared<Ledger>(memory, limits_of(2, 1000, 1000, 1000));
    {
        const auto account = ledger->open("a");
        EXPECT_TRUE(account->add(kBytes, kStep));
        EXPECT_EQ(memory->taken(), 0u) << "the first step costs no look at it";
        EXPECT_TRUE(account->add(kBytes, 49 * kStep));
        EXPECT_EQ(memory->taken(), 49 * kStep);
        memory->take(51 * kStep);
        EXPECT_FALSE(account->add(kBytes, 2 * kStep));
        EXPECT_TRUE(ledger->open("b")->add(kBytes, 2 * kStep)) << "so much each has in any case";
        EXPECT_THROW(memory->take(kStep), NoRoomError);
        memory->give(51 * kStep);
        account->remove(kBytes, 49 * kStep);
        EXPECT_EQ(memory->taken(), 2 * kStep) << "what comes again is kept";
    }
    EXPECT_EQ(memory->taken(), 0u);
}

TEST(AccountTest, WorkIsCountedInTurns) {
    const auto ledger = std::make_shared<Ledger>();
    const auto account = ledger->open("a");
    account->work(Account::kTurn - 1);
    EXPECT_FALSE(account->turn_is_over());
    account->work(1);
    EXPECT_TRUE(account->turn_is_over());
    EXPECT_EQ(account->end_turn(), Account::kTurn);
    EXPECT_FALSE(account->turn_is_over());
    EXPECT_EQ(account->end_turn(std::chrono::microseconds(3)), 3000u) << "it took longer";
    const auto other = ledger->open("a");
    other->work(7);
    other->end_turn();
    const auto hold = other->hold(Held::calls, 3);
    const auto origins = ledger->origins();
    ASSERT_EQ(origins.size(), 1u);
    EXPECT_EQ(origins[0].origin, "a");
    EXPECT_EQ(origins[0].sessions, 2u);
    EXPECT_DOUBLE_EQ(origins[0].worked_s, static_cast<double>(Account::kTurn + 3007) * 1e-9);
    ASSERT_EQ(origins[0].held.size(), 1u);
    EXPECT_STREQ(origins[0].held[0].first, "calls");
    EXPECT_EQ(origins[0].held[0].second, 3u);
    EXPECT_EQ(other->counts().held.size(), 1u);
    EXPECT_TRUE(account->counts().held.empty());
}

TEST(AccountTest, HoldsGoOnAnyThread) {
    const auto memory = std::make_shared<Quota>(Quota::kNoLimit);
    const auto ledger = std::make_shared<Ledger>(memory, limits_of(2, 100, 100, 1000));
    const auto account = ledger->open("a");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 1000; ++round) {
                const auto hold = account->hold(kBytes, 20 * kStep);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(account->held(kBytes), 0u);
    EXPECT_LE(memory->taken(), 100 * kStep);
}

// What is refused by a limit has nobody's memory to gain: readers keep what they have pinned.
TEST(AccountTest, OnlyWhatFindsNoMemoryReclaims) {
    const auto memory = std::make_shared<Quota>(100 * kStep);
    std::vector<bool> reclaimed;
    const auto handle =
        memory->add_reclaim([&](std::uint64_t, bool needed) { reclaimed.push_back(needed); });
    const auto ledger = std::make_shared<Ledger>(memory, limits_of(1, 60, 60, 1000));
    const auto one = ledger->open("a");
    const auto other = ledger->open("a");
    EXPECT_TRUE(one->add(kBytes, 59 * kStep));
    EXPECT_TRUE(other->add(kBytes, kStep));
    EXPECT_FALSE(other->add(kBytes, 4 * kStep)) << "its origin has enough";
    EXPECT_FALSE(other->has_room(kBytes, 4 * kStep));
    EXPECT_TRUE(reclaimed.empty());
    one->remove(kBytes, 40 * kStep);
    memory->take_anyway(100 * kStep);
    EXPECT_TRUE(one->is_full(kBytes) || !one->has_room(kBytes, 30 * kStep));
    EXPECT_TRUE(reclaimed.empty()) << "to look costs nothing";
    EXPECT_FALSE(one->add(kBytes, 30 * kStep));
    EXPECT_EQ(reclaimed, std::vector({false, true})) << "first what nobody loses";
}

TEST(AccountTest, WhatOutlivesASessionCountsFromTheFirstOn) {
    const auto ledger = std::make_shared<Ledger>();
    const Limit& limit = ledger->limit(Held::spaces);
    std::uint64_t begun = 0;
    std::vector<Hold> spaces;
    for (std::uint64_t session = 0; session < limit.of_origin; ++session) {
        const auto account = ledger->open("a");  // which hangs up
        for (int i = 0; i < 4; ++i) {
            if (auto hold = account->hold(Held::spaces, 1)) {
                spaces.push_back(std::move(*hold));
                ++begun;
            }
        }
    }
    EXPECT_EQ(begun, limit.of_origin);
    EXPECT_TRUE(ledger->open("b")->hold(Held::spaces, 1));
    spaces.pop_back();
    EXPECT_TRUE(ledger->open("a")->hold(Held::spaces, 1));
}

TEST(AccountTest, WhatEachHasInAnyCaseIsBounded) {
    constexpr std::uint64_t most = 10 * kStep;
    const auto ledger = std::make_shared<Ledger>(nullptr, limits_of(2, 8, 10, 1000));
    std::vector<std::shared_ptr<Account>> accounts;
    for (int i = 0; i < 20; ++i) {
        accounts.push_back(ledger->open("a"));
        for (std::uint64_t held = 0; held < 2 * kStep; held += kStep / 4) {
            accounts.back()->add(kBytes, kStep / 4);
        }
    }
    EXPECT_GE(ledger->held(kBytes), most);
    EXPECT_LE(ledger->held(kBytes), most + 20 * kStep) << "a first step of each is not counted";
    for (const auto& account : accounts) {
        EXPECT_GT(account->held(kBytes), 0u) << "it gets on";
        EXPECT_TRUE(account->is_full(kBytes) || account->held(kBytes) < kStep);
    }
}

// Each of them heeds kMaxUnanswered.
TEST(AccountTest, HundredsOfProcessesOfAHostWriteAtOnce) {
    const auto ledger = std::make_shared<Ledger>();
    std::vector<Hold> holds;
    for (int i = 0; i < 400; ++i) {
        const auto account = ledger->open("a host");
        auto values = account->hold(Held::values, kMaxUnanswered);
        auto bytes = account->hold(Held::request_bytes, kMaxUnanswered * 600);
        auto small = account->hold(Held::small_values, 100 * (kEagerBytes + 512));
        ASSERT_TRUE(values && bytes && small) << i;
        holds.push_back(std::move(*values));
        holds.push_back(std::move(*bytes));
        holds.push_back(std::move(*small));
    }
}

TEST(AccountTest, EachLimitLeavesRoomForOthers) {
    for (const Limit& limit : kLimits) {
        EXPECT_LE(limit.always, limit.of_session) << limit.name;
        EXPECT_LE(limit.of_session, limit.of_origin) << limit.name;
        EXPECT_LE(limit.of_origin, limit.of_all / 2) << limit.name;
        EXPECT_TRUE(limit.is_bytes || !limit.is_memory) << limit.name;
    }
}

}  // namespace
}  // namespace ucxstore::test

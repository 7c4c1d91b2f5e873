#include "base/counters.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "loopback.hpp"

namespace ucxstore::test {
namespace {

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(CountersTest, AClientIsToldForAsLongAsItIsHeld) {
    Counters counters;
    const auto one = counters.add("10.0.0.1:5");
    auto other = counters.add("10.0.0.2:6");
    counters.set_lanes(*one, {"sysv/memory", "tcp/lo"});
    counters.count_get(*one);
    counters.count_set(*other, 7);
    counters.count_sent(*one, 9);
    one->bytes_in_flight = 11;
    const std::string json = counters.to_json();
    EXPECT_TRUE(has(json,
                    R"({"id": 1, "peer": "10.0.0.1:5", "origin": "", "lanes": ["sysv/memory", )"
                    R"("tcp/lo"], "encrypted": false, "gets": 1, "sets": 0, )"
                    R"("bytes_sent": 9, "bytes_received": 0, "bytes_in_flight": 11, )"
                    R"("gets_waiting": 0, "gets_seen": 0, "bytes_seen": 0, "age_s": )"))
        << json;
    EXPECT_TRUE(has(json, R"("worked_s": 0.000000, "held": {}}, {"id": 2, "peer": "10.0.0.2:6", )"
                          R"("origin": "", "lanes": [], "encrypted": false, "gets": 0, )"
                          R"("sets": 1, "bytes_sent": 0, "bytes_received": 7,)"))
        << json;
    EXPECT_TRUE(has(counters.to_json(), R"("connected": 2)"));
    other.reset();
    EXPECT_FALSE(has(counters.to_json(), "10.0.0.2:6"));
    EXPECT_TRUE(has(counters.to_json(), R"("connected": 1)"));
    EXPECT_TRUE(has(counters.to_json(), R"("sets": 1, "bytes_sent": 9)"));
}

TEST(CountersTest, NamesCannotBreakOutAndStayShort) {
    Counters counters;
    const auto client = counters.add("a\"b\\c\n\xff" + std::string(1000, 'x'));
    counters.set_lanes(*client, std::vector<std::string>(100, std::string(1000, '"')));
    const std::string json = counters.to_json();
    EXPECT_TRUE(has(json, R"("a?b?c??x)")) << json;
    EXPECT_LT(json.size(), 3000u);
}

TEST(CountersTest, ClientsBeyondTheLimitAreOnlyCounted) {
    Counters counters;
    std::vector<std::shared_ptr<ClientCounters>> clients;
    for (std::size_t i = 0; i < Counters::kMaxClients + 5; ++i) {
        clients.push_back(counters.add(std::string(1000, 'x')));
        counters.set_lanes(*clients.back(), std::vector<std::string>(100, std::string(1000, 'y')));
    }
    const std::string json = counters.to_json();
    EXPECT_TRUE(has(json, R"("connected": 517)"));
    std::size_t told = 0;
    for (auto at = json.find("peer"); at != std::string::npos; at = json.find("peer", at + 1)) {
        ++told;
    }
    EXPECT_EQ(told, Counters::kMaxClients);
    EXPECT_LT(json.size(), 1u << 20);  // as docs/wire.md says
}

TEST(CountersTest, SessionsAreListedInPages) {
    Counters counters;
    std::vector<std::shared_ptr<ClientCounters>> clients;
    for (std::size_t i = 0; i < 2000; ++i) {
        clients.push_back(counters.add("peer"));
        counters.set_lanes(*clients.back(), {"tcp/eth0"}, true);
    }
    clients[5].reset();
    std::vector<std::uint64_t> listed;
    std::size_t pages = 0;
    for (bool more = true; more; ++pages) {
        const std::string page = counters.sessions_json(listed.empty() ? 0 : listed.back());
        EXPECT_LT(page.size(), Counters::kListedBytes + 4096);
        EXPECT_TRUE(has(page, R"("encrypted": true)"));
        const std::string name = R"("id": )";
        for (auto at = page.find(name); at != std::string::npos; at = page.find(name, at + 1)) {
            listed.push_back(std::stoull(page.substr(at + name.size())));
        }
        more = has(page, R"("more": true)");
    }
    EXPECT_GT(pages, 2u);
    std::vector<std::uint64_t> expected(2000);
    std::iota(expected.begin(), expected.end(), 1);
    expected.erase(expected.begin() + 5);
    EXPECT_EQ(listed, expected);
    EXPECT_EQ(counters.sessions_json(2000), R"({"sessions": [], "more": false})");
}

struct Read : Seeing {
    SeenCounts seen() const override { return counts; }
    SeenCounts counts;
};

TEST(CountersTest, WhatAClientHasReadByItselfStaysCounted) {
    Counters counters;
    const auto client = counters.add("10.0.0.1:5");
    const auto one = std::make_shared<Read>();
    const auto other = std::make_shared<Read>();
    client->seen.add(one);
    client->seen.add(other);
    one->counts = {.gets = 3, .bytes = 30};
    other->counts = {.gets = 4, .bytes = 40};
    EXPECT_TRUE(has(counters.to_json(), R"("gets_seen": 7, "bytes_seen": 70, "age_s")"));
    client->seen.drop(one.get());
    one->counts.gets = 100;  // somebody else's by now
    ++other->counts.gets;
    EXPECT_EQ(client->seen.counts().gets, 8u);
    EXPECT_EQ(one.use_count(), 1);
}

TEST(CountersTest, ThoseOfShelvesAreSummed) {
    const ShelfCounts one{.gets_seen = 1,
                          .bytes_seen = 2,
                          .arenas = 3,
                          .arena_bytes = 4,
                          .arena_bytes_used = 5,
                          .arena_bytes_slack = 6,
                          .arena_bytes_waiting = 7,
                          .arena_bytes_held = 8,
                          .adopted = 9,
                          .adopted_bytes = 10};
    ShelfCounts sum = one;
    sum += one;
    EXPECT_TRUE(has(Counters().to_json({}, sum),
                    R"("gets_seen": 2, "bytes_seen": 4, "arenas": 6, "arena_bytes": 8, )"
                    R"("arena_bytes_used": 10, "arena_bytes_slack": 12, )"
                    R"("arena_bytes_waiting": 14, "arena_bytes_held": 16, "adopted": 18, )"
                    R"("adopted_bytes": 20)"));
}

TEST(CountersTest, AServerAnswersWithThem) {
    Loopback both;
    both.set("k", pattern(5000));
    EXPECT_TRUE(both.get("k").has_value());
    const auto asked = call_operation(Op::stats, "");
    both.run(asked);
    const Bytes answer = reply_of(*asked);
    const std::string json(reinterpret_cast<const char*>(answer.data()), answer.size());
    EXPECT_TRUE(has(json, R"("gets": 1, "gets_missing": 0, "sets": 1, "bytes_sent": 5000)"))
        << json;
    EXPECT_TRUE(has(json, R"("connected": 1)"));
}

TEST(LatenciesTest, EachBucketEndsAtTwiceTheOneBefore) {
    using namespace std::chrono_literals;
    EXPECT_EQ(Latencies::bucket(-5ns), 0u);
    EXPECT_EQ(Latencies::bucket(0ns), 0u);
    EXPECT_EQ(Latencies::bucket(10us), 0u);
    EXPECT_EQ(Latencies::bucket(10001ns), 1u);
    EXPECT_EQ(Latencies::bucket(20us), 1u);
    EXPECT_EQ(Latencies::bucket(20001ns), 2u);
    EXPECT_EQ(Latencies::bucket(10240us), 10u);
    EXPECT_EQ(Latencies::bucket(10us * (1 << 21)), 21u);
    EXPECT_EQ(Latencies::bucket(10us * (1 << 21) + 1ns), 22u);
    EXPECT_EQ(Latencies::bucket(24h), Latencies::kBuckets - 1);
}

TEST(LatenciesTest, AllThreadsAreSummed) {
    using namespace std::chrono_literals;
    Latencies latencies;
    std::vector<std::thread> threads;
    for (int i = 0; i < 20; ++i) {
        threads.emplace_back([&] { latencies.add(RequestKind::set, 15us); });
    }
    for (std::thread& one : threads) {
        one.join();
    }
    const auto sets = latencies.histogram(static_cast<std::size_t>(RequestKind::set));
    EXPECT_EQ(sets.counts[1], 20u);
    EXPECT_NEAR(sets.seconds, 300e-6, 1e-9);
    EXPECT_EQ(latencies.histogram(static_cast<std::size_t>(RequestKind::get)).seconds, 0);
}

TEST(LatenciesTest, AServerCountsEachRequestOnce) {
    Loopback both;
    const auto count = [&](RequestKind kind) {
        const auto found = both.counters.latencies.histogram(static_cast<std::size_t>(kind));
        return std::accumulate(found.counts.begin(), found.counts.end(), std::uint64_t{0});
    };
    both.set("k", pattern(5000));
    both.set("large", pattern(40'000'000));  // several segments each way
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(both.get("k").has_value());
    }
    EXPECT_TRUE(both.get("large").has_value());
    EXPECT_FALSE(both.get("missing").has_value());
    both.stat("k");
    EXPECT_TRUE(eventually([&] { return count(RequestKind::get) == 5; }));
    EXPECT_TRUE(eventually([&] { return count(RequestKind::set) == 2; }));
    EXPECT_TRUE(eventually([&] { return count(RequestKind::stat) == 1; }));
    EXPECT_EQ(count(RequestKind::list), 0u);
    EXPECT_EQ(both.counters.all_failed(), 0u);
}

}  // namespace
}  // namespace ucxstore::test

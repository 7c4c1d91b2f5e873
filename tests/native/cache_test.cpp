// The cache of values: its bound, and what stays in it.
#include "cache/cache.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support.hpp"

namespace ucxstore::test {
namespace {

std::shared_ptr<Region> value(std::uint64_t size) {
    auto region = allocate_region(size);
    std::memset(region->data(), 0, size);
    return region;
}

std::string name(const std::string& kind, int number) { return kind + std::to_string(number); }

TEST(Cache, GivesBackWhatWasPut) {
    Cache cache(1 << 20);
    EXPECT_EQ(cache.find("a"), nullptr);
    const auto first = value(100);
    cache.put("a", first);
    EXPECT_EQ(cache.find("a"), first);
    const auto second = value(200);
    cache.put("a", second);
    EXPECT_EQ(cache.find("a"), second);
    EXPECT_EQ(cache.size(), 1u);
    cache.remove("a");
    cache.remove("a");
    EXPECT_EQ(cache.find("a"), nullptr);
    EXPECT_EQ(cache.size(), 0u);
}

TEST(Cache, RemovesWhatBeginsWithAPrefix) {
    Cache cache(1 << 20);
    for (const char* key : {"a", "a/1", "a/2", "a0", "b"}) {
        cache.put(key, value(10));
    }
    cache.remove_prefix("a/");
    EXPECT_EQ(cache.size(), 3u);
    EXPECT_EQ(cache.find("a/1"), nullptr);
    EXPECT_NE(cache.find("a0"), nullptr);
    cache.remove_prefix("");
    EXPECT_EQ(cache.size(), 0u);
    EXPECT_EQ(cache.bytes(), 0u);
}

TEST(Cache, KeepsNothingThatIsLargerThanItself) {
    Cache cache(1 << 20);
    cache.put("small", value(1000));
    cache.put("large", value(2 << 20));
    EXPECT_EQ(cache.find("large"), nullptr);
    EXPECT_NE(cache.find("small"), nullptr) << "and nothing has to go for it";
    Cache none(0);
    none.put("a", value(0));
    EXPECT_EQ(none.find("a"), nullptr);
    EXPECT_EQ(none.bytes(), 0u);
}

// A hot set of half the cache is read while ten times the cache goes through it once.
TEST(Cache, AScanDoesNotEmptyIt) {
    constexpr std::uint64_t kCapacity = 64 << 20;
    constexpr std::uint64_t kSize = 64 << 10;
    constexpr int kHot = kCapacity / 2 / kSize;
    constexpr int kScanned = 10 * kCapacity / kSize;
    Cache cache(kCapacity);
    std::mt19937 random(1);
    int hits = 0;
    int asked = 0;
    std::uint64_t most = 0;
    const auto read = [&](const std::string& key) {
        const bool hit = cache.find(key) != nullptr;
        if (!hit) {
            cache.put(key, value(kSize));
        }
        most = std::max(most, cache.bytes());
        return hit;
    };
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < kHot; ++i) {
            read(name("hot", i));
        }
    }
    for (int i = 0; i < kScanned; ++i) {
        EXPECT_FALSE(read(name("scanned", i)));
        hits += read(name("hot", static_cast<int>(random() % kHot)));
        ++asked;
    }
    EXPECT_GT(hits, asked * 9 / 10);
    EXPECT_LE(most, kCapacity);
    EXPECT_GT(cache.bytes(), kCapacity * 95 / 100) << "and it is used";
}

// The bound is on memory: of many small values, too, each of which takes more than its bytes.
TEST(Cache, CountsWhatItTakesToKeepSmallValues) {
    constexpr std::uint64_t kCapacity = 16 << 20;
    Cache cache(kCapacity);
    const std::uint64_t before = heap_bytes();
    for (int i = 0; i < 200'000; ++i) {
        cache.put(name("some/longer/key/", i), value(16));
    }
    EXPECT_LE(cache.bytes(), kCapacity);
    const std::uint64_t taken = heap_bytes() - before;
    EXPECT_LE(taken, kCapacity * 105 / 100);
    EXPECT_GT(taken, kCapacity / 3);
}

TEST(Cache, WhatIsBeingSentCountsUntilItHasGone) {
    constexpr std::uint64_t kCapacity = 1 << 20;
    Cache cache(kCapacity);
    cache.put("a", value(kCapacity / 2));
    auto sending = cache.find("a");
    cache.remove("a");
    EXPECT_GT(cache.bytes(), kCapacity / 2);
    cache.put("b", value(kCapacity * 2 / 3));
    EXPECT_EQ(cache.find("b"), nullptr) << "there is no room for it yet";
    sending.reset();
    cache.put("b", value(kCapacity * 2 / 3));
    EXPECT_NE(cache.find("b"), nullptr);
    EXPECT_LE(cache.bytes(), kCapacity);
}

TEST(Cache, WhatIsBeingSentStays) {
    constexpr std::uint64_t kCapacity = 1 << 20;
    Cache cache(kCapacity);
    cache.put("sent", value(kCapacity / 4));
    const auto sending = cache.find("sent");
    for (int i = 0; i < 100; ++i) {
        cache.put(name("k", i), value(kCapacity / 8));
        EXPECT_LE(cache.bytes(), kCapacity);
    }
    EXPECT_EQ(cache.find("sent"), sending);
    EXPECT_NE(cache.find("k99"), nullptr);
}

TEST(Cache, NoRoomForMoreWhereAllIsBeingSent) {
    constexpr std::uint64_t kCapacity = 1 << 20;
    Cache cache(kCapacity);
    std::vector<Cache::Value> sending;
    for (int i = 0; i < 4; ++i) {
        cache.put(name("k", i), value(kCapacity / 5));
        sending.push_back(cache.find(name("k", i)));
    }
    cache.put("more", value(kCapacity / 2));
    EXPECT_EQ(cache.find("more"), nullptr);
    EXPECT_EQ(cache.size(), 4u);
}

}  // namespace
}  // namespace ucxstore::test

#include "memory/recycler.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

TEST(Recycler, GivesOutWhatItGotBack) {
    Recycler recycler(64 * kMiB);
    const Mapping first = recycler.take(8 * kMiB);
    EXPECT_GE(first.capacity, 8 * kMiB);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data) % (2 * kMiB), 0u);
    std::memset(first.data, 1, 8 * kMiB);
    recycler.give(first);
    EXPECT_EQ(recycler.kept(), first.capacity);
    const Mapping second = recycler.take(8 * kMiB);
    EXPECT_EQ(second.data, first.data);
    EXPECT_EQ(recycler.kept(), 0u);
    recycler.give(second);
}

TEST(Recycler, SmallMappingsAreThereAtOnce) {
    Recycler recycler(0);
    const Mapping mapping = recycler.take(kMiB);
    if (madvise(mapping.data, mapping.capacity, 23 /* MADV_POPULATE_WRITE */) != 0) {
        GTEST_SKIP() << "Linux before 5.14";
    }
    const Mapping other = recycler.take(kMiB);
    std::vector<unsigned char> present(other.capacity / static_cast<std::uint64_t>(getpagesize()));
    ASSERT_EQ(mincore(other.data, other.capacity, present.data()), 0);
    EXPECT_EQ(std::ranges::count(present, 1), std::ssize(present));
    recycler.give(mapping);
    recycler.give(other);
}

TEST(Recycler, WastesLittle) {
    Recycler recycler(64 * kMiB);
    const Mapping large = recycler.take(32 * kMiB);
    recycler.give(large);
    const Mapping small = recycler.take(4 * kMiB);
    EXPECT_LT(small.capacity, 16 * kMiB);
    recycler.give(small);
}

TEST(Recycler, WastesLessOfWhatIsKeptForLong) {
    Recycler recycler(64 * kMiB);
    const Mapping first = recycler.take(2 * kMiB);
    EXPECT_FALSE(first.present);
    recycler.give(first);
    const Mapping stored = recycler.take(270'000, Kept::for_long);
    EXPECT_LT(stored.capacity, 310'000u);
    const Mapping again = recycler.take(2 * kMiB);
    recycler.give(again);
    const Mapping brief = recycler.take(270'000);
    EXPECT_EQ(brief.data, again.data);
    EXPECT_TRUE(brief.present);
    recycler.give(brief);
    recycler.give(stored);
}

TEST(Recycler, KeepsNoMoreThanItsLimit) {
    Recycler recycler(10 * kMiB);
    std::vector<Mapping> mappings;
    for (int i = 0; i < 4; ++i) {
        mappings.push_back(recycler.take(4 * kMiB));
    }
    for (const Mapping& mapping : mappings) {
        recycler.give(mapping);
        EXPECT_LE(recycler.kept(), 10 * kMiB);
    }
    EXPECT_EQ(recycler.kept(), 8 * kMiB);

    Recycler none(0);
    none.give(none.take(4 * kMiB));
    EXPECT_EQ(none.kept(), 0u);
}

TEST(Recycler, SetsATimerToGiveBackWhatNobodyWanted) {
    Recycler recycler(64 * kMiB);
    const auto left = [&recycler] {
        itimerspec when{};
        timerfd_gettime(recycler.timer(), &when);
        return std::chrono::seconds(when.it_value.tv_sec) +
               std::chrono::nanoseconds(when.it_value.tv_nsec);
    };
    EXPECT_EQ(left(), 0s);
    recycler.give(recycler.take(4 * kMiB));
    EXPECT_GT(left(), 0s);
    recycler.trim();  // too early
    EXPECT_GT(recycler.kept(), 0u);
    EXPECT_GT(left(), 0s);
}

TEST(Recycler, WhatNoMemoryHoldsIsAnError) {
    Recycler recycler(64 * kMiB);
    EXPECT_EQ(error_of([&] { recycler.take(~0ull); }), ErrorKind::memory);
    EXPECT_EQ(error_of([&] { recycler.take(1ull << 60); }), ErrorKind::memory);
}

TEST(Recycler, NoTwoHaveTheSameMemory) {
    Recycler recycler(16 * kMiB);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 50; ++i) {
                const Mapping mapping = recycler.take(2 * kMiB);
                std::memset(mapping.data, thread, 1000);
                recycler.trim();
                EXPECT_EQ(mapping.data[999], std::byte(thread));
                recycler.give(mapping);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace
}  // namespace ucxstore::test

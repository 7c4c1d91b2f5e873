#include "shared/arenas.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "storage/quota.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

TEST(Extents, AreTheSmallestThatFit) {
    Extents pages(100);
    EXPECT_EQ(pages.take(10), 0u);
    EXPECT_EQ(pages.take(30), 10u);
    EXPECT_EQ(pages.take(10), 40u);
    pages.give(0, 10);
    EXPECT_EQ(pages.take(8), 0u);
    EXPECT_EQ(pages.take(3), 50u);
    EXPECT_EQ(pages.free(), 49u);
    EXPECT_EQ(pages.largest(), 47u);
}

TEST(Extents, BeginWhereTheyAreAsked) {
    Extents pages(64);
    EXPECT_EQ(pages.take(3), 0u);
    EXPECT_EQ(pages.take(16, 16), 16u);
    EXPECT_EQ(pages.take(13), 3u);
    EXPECT_EQ(pages.take(33, 16), std::nullopt);
    EXPECT_EQ(pages.take(32, 16), 32u);
    EXPECT_EQ(pages.take(1), std::nullopt);
}

// A bit for each page, and no index.
class SlowPages {
  public:
    explicit SlowPages(std::uint64_t count) : used_(count) {}

    bool can_take(std::uint64_t count, std::uint64_t alignment) const {
        for (std::uint64_t first = 0; first + count <= used_.size(); first += alignment) {
            if (is_free(first, count)) {
                return true;
            }
        }
        return false;
    }
    bool is_free(std::uint64_t first, std::uint64_t count) const {
        for (std::uint64_t page = first; page < first + count; ++page) {
            if (used_.at(page)) {
                return false;
            }
        }
        return true;
    }
    void set(std::uint64_t first, std::uint64_t count, bool used) {
        std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(first), count, used);
    }
    std::uint64_t free() const {
        return static_cast<std::uint64_t>(std::count(used_.begin(), used_.end(), false));
    }

  private:
    std::vector<bool> used_;
};

TEST(Extents, DoAsASlowModelDoes) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        Extents pages(300);
        SlowPages model(300);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
        for (int step = 0; step < 1000; ++step) {
            if (random() % 5 < 3 || taken.empty()) {
                const std::uint64_t count = 1 + random() % 40;
                const std::uint64_t alignment = 1u << random() % 5;
                const auto first = pages.take(count, alignment);
                ASSERT_EQ(first.has_value(), model.can_take(count, alignment));
                if (first) {
                    ASSERT_EQ(*first % alignment, 0u);
                    ASSERT_TRUE(model.is_free(*first, count));
                    model.set(*first, count, true);
                    taken.emplace_back(*first, count);
                }
            } else {
                std::swap(taken[random() % taken.size()], taken.back());
                const auto [first, count] = taken.back();
                taken.pop_back();
                pages.give(first, count);
                model.set(first, count, false);
            }
            ASSERT_EQ(pages.free(), model.free());
        }
        for (const auto& [first, count] : taken) {
            pages.give(first, count);
        }
        EXPECT_EQ(pages.largest(), 300u) << "neighbours are joined";
    }
}

TEST(Arenas, ABlockHasLittleMoreThanItsValue) {
    for (std::uint64_t size = 0; size < 100'000; ++size) {
        const std::uint64_t bytes = Arenas::capacity(size);
        ASSERT_GE(bytes, size);
        ASSERT_EQ(bytes % 64, 0u);
        ASSERT_TRUE(bytes <= 64 || bytes - size < std::max<std::uint64_t>(64, size / 4)) << size;
        ASSERT_EQ(Arenas::capacity(bytes), bytes);
    }
    EXPECT_EQ(Arenas::capacity(3 * kMiB + 1), 3 * kMiB + 4096);
}

TEST(Arenas, BlocksAreApartAndKeepWhatIsWritten) {
    std::mt19937 random(3);
    Arenas arenas(nullptr, kMiB);
    struct Written {
        Block block;
        unsigned char byte;
        std::uint64_t size;
    };
    std::vector<Written> written;
    const auto check = [](const Written& one) {
        for (const std::uint64_t at : {std::uint64_t{0}, one.size / 2, one.size - 1}) {
            ASSERT_EQ(static_cast<unsigned char>(one.block.data[at]), one.byte);
        }
    };
    std::uint64_t taken = 0;
    for (int step = 0; step < 20'000; ++step) {
        if (random() % 9 < 5 || written.empty()) {
            const std::uint64_t most = std::uint64_t{1} << random() % 19;
            const std::uint64_t size = 1 + random() % most;
            const Block block = arenas.take(size);
            ASSERT_GE(block.bytes, size);
            const auto byte = static_cast<unsigned char>(random());
            std::memset(block.data, byte, size);
            written.push_back({block, byte, size});
            taken += block.bytes;
        } else {
            std::swap(written[random() % written.size()], written.back());
            check(written.back());
            taken -= written.back().block.bytes;
            arenas.give(written.back().block);
            written.pop_back();
        }
        ASSERT_EQ(arenas.usage().taken, taken);
    }
    for (const Written& one : written) {
        check(one);
        arenas.give(one.block);
    }
    const Arenas::Usage usage = arenas.usage();
    EXPECT_EQ(usage.arenas, 0u) << "all is given back";
    EXPECT_EQ(usage.reserved, 0u);
    EXPECT_EQ(usage.slack, 0u);
}

TEST(Arenas, LargeBlocksBeginOnHugePages) {
    Arenas arenas;
    const Block small = arenas.take(100);
    const Block large = arenas.take(5 * kMiB);
    const Block other = arenas.take(5 * kMiB);
    EXPECT_EQ(large.offset % Arenas::kHugePage, 0u);
    EXPECT_EQ(other.offset % Arenas::kHugePage, 0u);
    EXPECT_EQ(small.arena, other.arena);
    // What is left between them is for others.
    EXPECT_LT(arenas.take(kMiB).offset, other.offset);
}

TEST(Arenas, KnowWhereBlocksBegin) {
    Arenas arenas;
    const Block small = arenas.take(100);
    const Block large = arenas.take(5 * kMiB);
    EXPECT_EQ(arenas.bytes_of(small.arena, small.offset), small.bytes);
    EXPECT_EQ(arenas.bytes_of(large.arena, large.offset), large.bytes);
    // Whatever a reader says that it reads:
    EXPECT_EQ(arenas.bytes_of(large.arena, large.offset + 4096), 0u);
    EXPECT_EQ(arenas.bytes_of(small.arena, small.offset + 1), 0u);
    EXPECT_EQ(arenas.bytes_of(large.arena + 1, large.offset), 0u);
    EXPECT_EQ(arenas.bytes_of(large.arena, ~std::uint64_t{0}), 0u);
    arenas.give(small);
    EXPECT_EQ(arenas.bytes_of(small.arena, small.offset), 0u);
    arenas.give(large);
    EXPECT_EQ(arenas.bytes_of(large.arena, large.offset), 0u);
}

TEST(Arenas, AreFewHoweverMuchThereIs) {
    Arenas arenas(nullptr, kMiB);
    std::vector<Block> blocks;
    for (int i = 0; i < 1000; ++i) {
        blocks.push_back(arenas.take(kMiB));
    }
    EXPECT_LE(arenas.usage().arenas, 12u);
    for (const Block& block : blocks) {
        arenas.give(block);
    }
}

TEST(Arenas, ReadersAreToldOfAnEmptyOneThatLeavesNoRoomForALargerOne) {
    for (const std::uint64_t limit : {30 * kMiB, 300 * kMiB}) {
        std::vector<std::uint32_t> dropped;
        const auto on_drop = [&](std::uint32_t number) { dropped.push_back(number); };
        const auto quota = Quota::of_memory(limit);
        Arenas arenas(on_drop, kMiB, Arenas::kAnyBytes, 64 * kMiB, quota);
        const Block block = arenas.take(20 * kMiB);
        std::memset(block.data, 7, block.bytes);
        const Fd readers = arenas.arena(block.arena)->open_for_reader();
        arenas.give(block);
        EXPECT_EQ(dropped.size(), limit == 30 * kMiB ? 1u : 0u);
        EXPECT_EQ(arenas.usage().arenas, 1u);
    }
}

TEST(Arenas, AnEmptyOneIsKeptForAWhile) {
    std::vector<std::uint32_t> dropped;
    const auto on_drop = [&](std::uint32_t number) { dropped.push_back(number); };
    Arenas arenas(on_drop, kMiB, Arenas::kAnyBytes, 16 * kMiB);
    const auto later = [](int seconds) { return Clock::now() + std::chrono::seconds(seconds); };
    const Block first = arenas.take(10 * kMiB);
    std::memset(first.data, 7, first.bytes);
    arenas.give(first);
    arenas.trim(later(4));
    EXPECT_EQ(arenas.usage().arenas, 1u);
    const Block again = arenas.take(10 * kMiB);
    EXPECT_EQ(again.data, first.data) << "its pages are there";
    arenas.trim(later(9));
    EXPECT_TRUE(dropped.empty()) << "it is in use";

    // There is no room for both: the one goes that has been empty for longer.
    const Block second = arenas.take(9 * kMiB);
    arenas.give(again);
    arenas.give(second);
    EXPECT_EQ(dropped, std::vector{again.arena});
    EXPECT_EQ(arenas.usage().arenas, 1u);

    // Nor is there room for one that is larger than all that is kept.
    const Block large = arenas.take(30 * kMiB);
    arenas.give(large);
    EXPECT_EQ(dropped.size(), 3u);
    EXPECT_EQ(arenas.usage().reserved, 0u);

    arenas.give(arenas.take(kMiB));
    EXPECT_EQ(arenas.usage().arenas, 1u);
    arenas.trim(later(6));
    EXPECT_EQ(arenas.usage().arenas, 0u);
    EXPECT_EQ(arenas.usage().reserved, 0u);
}

TEST(Arenas, TheTimerRunsWhileOneIsKept) {
    Arenas arenas(nullptr, kMiB, Arenas::kAnyBytes, 16 * kMiB);
    const auto seconds_left = [&] {
        itimerspec left{};
        timerfd_gettime(arenas.timer(), &left);
        return static_cast<double>(left.it_value.tv_sec) +
               static_cast<double>(left.it_value.tv_nsec) * 1e-9;
    };
    EXPECT_EQ(seconds_left(), 0);
    const Block block = arenas.take(kMiB);
    EXPECT_EQ(seconds_left(), 0);
    arenas.give(block);
    EXPECT_GT(seconds_left(), 0);
    EXPECT_LE(seconds_left(), 5.1);
    arenas.trim(Clock::now() + std::chrono::seconds(6));
    EXPECT_EQ(seconds_left(), 0);
}

TEST(Arenas, NobodyElseCanWriteToThem) {
    Arenas arenas;
    const Block block = arenas.take(5000);
    std::memset(block.data, 7, 5000);
    const auto arena = arenas.arena(block.arena);
    ASSERT_NE(arena, nullptr);
    const int given = arena->descriptor();
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, given, 0), MAP_FAILED);
    EXPECT_EQ(pwrite(given, "x", 1, 0), -1);
    EXPECT_EQ(ftruncate(given, 0), -1);
    // As root, or as its owner, it can be opened anew, and no more than that.
    const Fd again(open(("/proc/self/fd/" + std::to_string(given)).c_str(), O_RDWR | O_CLOEXEC));
    if (again) {
        EXPECT_EQ(pwrite(again.get(), "x", 1, 0), -1);
        EXPECT_EQ(errno, EPERM);
        EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
                  MAP_FAILED);
        EXPECT_EQ(ftruncate(again.get(), 0), -1);
        EXPECT_NE(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    }
    const auto* const mapped = static_cast<const std::byte*>(
        mmap(nullptr, arena->size(), PROT_READ, MAP_SHARED, given, 0));
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(std::memcmp(mapped + block.offset, block.data, 5000), 0);
    std::memset(block.data, 9, 5000);  // the server itself goes on to write
    EXPECT_EQ(static_cast<int>(mapped[block.offset + 4999]), 9);
    munmap(const_cast<std::byte*>(mapped), arena->size());
}

TEST(Arenas, AValueOfAnotherWorldIsRefused) {
    Arenas arenas;
    EXPECT_THROW(arenas.take(~std::uint64_t{0}), Error);
    EXPECT_THROW(arenas.take(std::uint64_t{1} << 60), Error);
    EXPECT_EQ(arenas.usage().taken, 0u);
    EXPECT_EQ(arenas.usage().reserved, 0u);
}

}  // namespace
}  // namespace ucxstore::test

#include "memory/copier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "support.hpp"
#include "ucx/distance.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kUntouched{0xa5};
constexpr std::size_t kGuard = 200;  // around every fragment: more than a few lines' overrun

class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}

    std::size_t draw(std::size_t low, std::size_t high) {
        return std::uniform_int_distribution<std::size_t>(low, high)(engine_);
    }
    bool one_in(std::size_t times) { return draw(1, times) == 1; }

    // Around a line of 64 bytes, where the cases are; now and then many of them, or nothing.
    std::size_t length() {
        return one_in(5)   ? 0
               : one_in(4) ? draw(200, 3000)
               : one_in(3) ? draw(63, 65)
                           : draw(1, 200);
    }

    template <typename Item>
    void shuffle(std::vector<Item>& items) {
        std::ranges::shuffle(items, engine_);
    }

  private:
    std::mt19937 engine_;
};

// A message in pieces, which lie in some memory in any order with gaps between them; and, as the
// oracle, the place of each of its bytes.
struct Scattered {
    Bytes memory;
    std::vector<ucp_dt_iov_t> pieces;
    std::vector<std::size_t> places;

    explicit Scattered(Random& random) {
        struct Piece {
            std::size_t at;
            std::size_t length;
        };
        std::vector<Piece> laid(random.draw(0, 12));
        std::size_t end = 0;
        for (Piece& piece : laid) {
            piece = {end + random.draw(0, 70), random.length()};
            end = piece.at + piece.length;
        }
        memory.resize(end + random.draw(1, 70));
        random.shuffle(laid);
        for (const Piece& piece : laid) {
            // What has no bytes need not be anywhere.
            const bool is_null = piece.length == 0 && random.one_in(2);
            pieces.push_back({is_null ? nullptr : memory.data() + piece.at, piece.length});
            for (std::size_t i = 0; i < piece.length; ++i) {
                places.push_back(piece.at + i);
            }
        }
    }
    Scattered(const Scattered&) = delete;
    Scattered& operator=(const Scattered&) = delete;
};

struct Fragment {
    std::size_t offset;
    std::size_t length;
};

// Covers a message of `size` bytes.
std::vector<Fragment> fragments_of(std::size_t size, Random& random) {
    std::vector<Fragment> fragments;
    for (std::size_t offset = 0; offset < size || random.one_in(2);) {
        const std::size_t length = std::min(random.length(), size - offset);
        fragments.push_back({offset, length});
        offset += length;
    }
    if (random.one_in(2)) {
        random.shuffle(fragments);
    }
    return fragments;
}

// Bytes of their own at any alignment, with a guard on either side.
class Guarded {
  public:
    Guarded(std::size_t length, Random& random)
        : lead_(kGuard + random.draw(0, 63)),
          length_(length),
          bytes_(lead_ + length + kGuard, kUntouched) {}

    std::byte* data() { return bytes_.data() + lead_; }
    Bytes inside() const { return cut(lead_, length_); }
    bool guards_are_whole() const {
        return cut(0, lead_) == Bytes(lead_, kUntouched) &&
               cut(lead_ + length_, kGuard) == Bytes(kGuard, kUntouched);
    }

  private:
    Bytes cut(std::size_t from, std::size_t length) const {
        const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(from);
        return {begin, begin + static_cast<std::ptrdiff_t>(length)};
    }

    std::size_t lead_;
    std::size_t length_;
    Bytes bytes_;
};

class CopierTest : public testing::TestWithParam<Write> {};

INSTANTIATE_TEST_SUITE_P(All, CopierTest, testing::Values(Write::cached, Write::past_caches),
                         [](const auto& info) {
                             return info.param == Write::cached ? "Cached" : "PastCaches";
                         });

constexpr unsigned kSeeds = 400;

TEST_P(CopierTest, ScattersWhatItIsGivenAndTouchesNothingElse) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
        SCOPED_TRACE(seed);
        Random random(seed);
        Scattered target(random);
        std::ranges::fill(target.memory, kUntouched);
        Bytes expected = target.memory;
        const std::size_t size = target.places.size();
        Copier copier(target.pieces);
        ASSERT_EQ(copier.size(), size);
        auto fragments = fragments_of(size, random);
        if (!fragments.empty() && random.one_in(3)) {
            fragments.pop_back();  // one that never comes
        }
        for (int beyond = 0; beyond < 3; ++beyond) {
            const std::size_t offset =
                random.draw(size - std::min<std::size_t>(size, 99), size + 9);
            fragments.insert(
                fragments.begin() + static_cast<std::ptrdiff_t>(random.draw(0, fragments.size())),
                {random.one_in(3) ? size : offset, random.draw(0, 300)});
        }
        for (const Fragment& fragment : fragments) {
            // Exactly as large as they are, so that AddressSanitizer sees what is read beyond it.
            const std::size_t skip = random.draw(0, 63);
            Bytes source = pattern(skip + fragment.length, seed + 1);
            source.shrink_to_fit();
            copier.scatter(fragment.offset, source.data() + skip, fragment.length, GetParam());
            for (std::size_t i = 0; i < fragment.length && fragment.offset + i < size; ++i) {
                expected[target.places[fragment.offset + i]] = source[skip + i];
            }
        }
        ASSERT_TRUE(target.memory == expected);
    }
}

TEST_P(CopierTest, GathersWhatItIsAskedForAndTouchesNothingElse) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
        SCOPED_TRACE(seed);
        Random random(seed);
        Scattered source(random);
        std::ranges::copy(pattern(source.memory.size(), seed), source.memory.begin());
        const Bytes before = source.memory;
        const std::size_t size = source.places.size();
        Copier copier(source.pieces);
        auto fragments = fragments_of(size, random);
        for (int again = 0; again < 3; ++again) {
            const std::size_t offset = random.draw(0, size);
            fragments.push_back({offset, random.draw(0, size - offset)});
        }
        for (const Fragment& fragment : fragments) {
            Guarded target(fragment.length, random);
            copier.gather(fragment.offset, target.data(), fragment.length, GetParam());
            Bytes expected;
            for (std::size_t i = 0; i < fragment.length; ++i) {
                expected.push_back(source.memory[source.places[fragment.offset + i]]);
            }
            ASSERT_TRUE(target.inside() == expected);
            ASSERT_TRUE(target.guards_are_whole());
        }
        ASSERT_TRUE(source.memory == before);
    }
}

TEST_P(CopierTest, ThereMayBeNothingToCopy) {
    Bytes memory(1, kUntouched);
    std::byte other = kUntouched;
    const std::vector<ucp_dt_iov_t> lists[] = {
        {}, {{nullptr, 0}}, {{memory.data(), 0}, {nullptr, 0}, {memory.data() + 1, 0}}};
    for (const auto& pieces : lists) {
        Copier copier(pieces);
        EXPECT_EQ(copier.size(), 0u);
        copier.gather(0, nullptr, 0, GetParam());
        copier.scatter(0, nullptr, 0, GetParam());
        copier.scatter(0, &other, 1, GetParam());
        copier.scatter(~0ull, &other, 1, GetParam());
    }
    EXPECT_EQ(memory[0], kUntouched);
}

TEST_P(CopierTest, TheEndMayBeLookedAtAndTheBeginningAgain) {
    Bytes memory = pattern(100);
    const std::vector<ucp_dt_iov_t> pieces = {
        {nullptr, 0}, {memory.data(), 60}, {nullptr, 0}, {memory.data() + 60, 40}, {nullptr, 0}};
    Copier copier(pieces);
    Bytes out(100);
    for (int round = 0; round < 2; ++round) {
        copier.gather(100, nullptr, 0, GetParam());
        copier.scatter(100, out.data(), 100, GetParam());
        copier.gather(99, out.data() + 99, 1, GetParam());
        copier.gather(60, out.data() + 60, 39, GetParam());
        copier.gather(0, out.data(), 60, GetParam());
        EXPECT_EQ(out, pattern(100));
    }
    EXPECT_EQ(memory, pattern(100));
}

// ---------------------------------------------------------------------------------------------

constexpr std::uint64_t kFragment = 60 * 1024;
constexpr std::chrono::nanoseconds kFast = 5us;   // 12 bytes a nanosecond
constexpr std::chrono::nanoseconds kSlow = 25us;  // 2.5

// How many copies of this kind until it says so; of `most` at the most.
int copies_until(Distance& distance, bool far, std::chrono::nanoseconds took, int most = 10'000) {
    int copies = 0;
    while (distance.is_far() != far && copies < most) {
        distance.note(kFragment, took);
        ++copies;
    }
    return copies;
}

constexpr int kTries = 8;
constexpr int kFarFor = 1024;

TEST(Distance, IsNearAtFirstAndStaysSo) {
    Distance distance;
    EXPECT_FALSE(distance.is_far());
    EXPECT_EQ(copies_until(distance, true, kFast), 10'000);
}

TEST(Distance, IsFarOnceAllOfSomeCopiesWereSlow) {
    Distance distance;
    EXPECT_EQ(copies_until(distance, true, kSlow), kTries);
}

TEST(Distance, SomeSlowCopiesAmongFastOnesAreSomethingElse) {
    Distance distance;
    for (int i = 0; i < 10 * kTries; ++i) {
        distance.note(kFragment, i % kTries == 3 ? 1ms : kFast);
        EXPECT_FALSE(distance.is_far());
    }
    for (int i = 0; i < 10 * kTries; ++i) {
        distance.note(kFragment, i % kTries == 3 ? kFast : 1ms);
        EXPECT_FALSE(distance.is_far());
    }
}

TEST(Distance, IsMeasuredAnewAfterAWhile) {
    Distance distance;
    EXPECT_EQ(copies_until(distance, true, kSlow), kTries);
    // How long they take past the caches says nothing.
    EXPECT_EQ(copies_until(distance, false, kSlow), kFarFor);
    EXPECT_EQ(copies_until(distance, true, kSlow), kTries);
    EXPECT_EQ(copies_until(distance, false, kFast), kFarFor);
    EXPECT_EQ(copies_until(distance, true, kFast), 10'000) << "the cores have come near";
    EXPECT_LE(copies_until(distance, true, kSlow), 2 * kTries) << "and have parted again";
}

TEST(Distance, SmallCopiesDoNotCount) {
    Distance distance;
    for (int i = 0; i < 10 * kTries; ++i) {
        distance.note(1000, 1ms);
        distance.note(0, 0ns);
    }
    EXPECT_FALSE(distance.is_far());
    EXPECT_EQ(copies_until(distance, true, kSlow), kTries);
    for (int i = 0; i < 2 * kFarFor; ++i) {
        distance.note(1000, 1ns);
    }
    EXPECT_TRUE(distance.is_far());
    EXPECT_EQ(copies_until(distance, false, kSlow), kFarFor);
}

// As a coarse clock may say.
TEST(Distance, ACopyMayTakeNoTime) {
    Distance distance;
    EXPECT_EQ(copies_until(distance, true, 0ns, 10 * kTries), 10 * kTries);
}

}  // namespace
}  // namespace ucxstore::test

#include "protocol/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

using Offsets = std::vector<std::int64_t>;

// The oracle: the place of every byte of the box, by nested loops.
Offsets offsets_of(std::int64_t offset, std::uint64_t itemsize, std::span<const Dim> dims) {
    Offsets places;
    if (dims.empty()) {
        places.resize(itemsize);
        std::iota(places.begin(), places.end(), offset);
        return places;
    }
    for (std::uint64_t i = 0; i < dims[0].count; ++i) {
        const auto inner = offsets_of(offset + static_cast<std::int64_t>(i) * dims[0].stride,
                                      itemsize, dims.subspan(1));
        places.insert(places.end(), inner.begin(), inner.end());
    }
    return places;
}

// The same, out of pieces(). The base is never dereferenced.
Offsets offsets_of(const Layout& layout, std::uint64_t begin, std::uint64_t length) {
    auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
    std::vector<ucp_dt_iov_t> pieces;
    layout.pieces(base, begin, length, pieces);
    Offsets places;
    for (const ucp_dt_iov_t& piece : pieces) {
        EXPECT_GT(piece.length, 0u);
        for (std::size_t i = 0; i < piece.length; ++i) {
            places.push_back(static_cast<std::byte*>(piece.buffer) - base +
                             static_cast<std::int64_t>(i));
        }
    }
    return places;
}

struct Box {
    Offsets offsets;
    std::uint64_t itemsize;
    std::vector<Dim> dims;

    Layout layout() const { return Layout::gathered(offsets, itemsize, dims); }
    Offsets places() const {
        Offsets all;
        for (const std::int64_t offset : offsets) {
            const auto some = offsets_of(offset, itemsize, dims);
            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }
};

Box random_box(std::mt19937& random, bool negative) {
    const auto draw = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    Box box{{}, static_cast<std::uint64_t>(draw(1, 4)), {}};
    // One box for the most part; or many, out of order, twice the same, or none.
    for (std::int64_t boxes = draw(0, 2) == 0 ? draw(0, 6) : 1; boxes > 0; --boxes) {
        box.offsets.push_back(draw(0, 50));
    }
    auto natural = static_cast<std::int64_t>(box.itemsize);
    for (std::int64_t axes = draw(0, 4); axes > 0; --axes) {
        const auto count = static_cast<std::uint64_t>(draw(0, 8) == 0 ? 0 : draw(1, 4));
        // Often the stride of an axis that lies end to end with the one inside it.
        std::int64_t stride = draw(0, 2) == 0 ? draw(0, 40) : natural;
        if (negative && draw(0, 2) == 0) {
            stride = -stride;
        }
        box.dims.insert(box.dims.begin(), {count, stride});
        natural = stride * static_cast<std::int64_t>(count);
    }
    return box;
}

TEST(Layout, HasThePlacesOfItsBoxInCOrder) {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        const Box box = random_box(random, true);
        const Offsets expected = box.places();
        const Layout layout = box.layout();
        ASSERT_EQ(layout.size(), expected.size());
        ASSERT_EQ(layout.run_count() * layout.run(), layout.size());
        ASSERT_EQ(offsets_of(layout, 0, layout.size()), expected);
    }
}

TEST(Layout, AnyPartOfItIsThatPartOfItsPlaces) {
    std::mt19937 random(2);
    for (int round = 0; round < 500; ++round) {
        const Box box = random_box(random, true);
        const Offsets all = box.places();
        const Layout layout = box.layout();
        for (int part = 0; part < 20; ++part) {
            const std::uint64_t begin = random() % (all.size() + 1);
            const std::uint64_t length = random() % (all.size() - begin + 1);
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
            ASSERT_EQ(offsets_of(layout, begin, length),
                      Offsets(from, from + static_cast<std::ptrdiff_t>(length)));
        }
    }
}

TEST(Layout, IsPackedInTheOrderOfItsPlaces) {
    std::mt19937 random(3);
    std::vector<std::byte> memory(1 << 16);
    std::ranges::generate(memory, [&] { return static_cast<std::byte>(random()); });
    const std::size_t middle = memory.size() / 2;
    for (int round = 0; round < 3000; ++round) {
        Box box = random_box(random, true);
        box.itemsize = std::array{1, 2, 3, 4, 5, 8, 16, 17}[random() % 8];
        const Layout layout = box.layout();
        std::vector<std::byte> expected;
        for (const std::int64_t place : box.places()) {
            expected.push_back(memory[middle + static_cast<std::size_t>(place)]);
        }
        std::vector<std::byte> packed(layout.size());
        layout.pack(memory.data() + middle, packed.data());
        ASSERT_EQ(packed, expected);
    }
}

TEST(Layout, PiecesAreAppended) {
    std::byte memory[8];
    std::vector<ucp_dt_iov_t> pieces;
    Layout::contiguous(4).pieces(memory, 0, 4, pieces);
    Layout::contiguous(4, 4).pieces(memory, 1, 2, pieces);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[1].buffer, memory + 5);
    EXPECT_EQ(pieces[1].length, 2u);
}

TEST(Layout, MergesWhatLiesEndToEnd) {
    const std::vector<Dim> c_order = {{2, 60}, {3, 20}, {5, 4}};
    EXPECT_TRUE(Layout::strided(0, 4, c_order).dims().empty());
    EXPECT_EQ(Layout::strided(0, 4, c_order).run(), 120u);

    const std::vector<Dim> rows = {{2, 300}, {3, 100}, {5, 4}};
    EXPECT_EQ(Layout::strided(0, 4, rows).run(), 20u);
    EXPECT_EQ(Layout::strided(0, 4, rows).dims().size(), 1u);  // 6 rows, 100 apart

    const std::vector<Dim> backwards = {{5, -4}};
    EXPECT_EQ(Layout::strided(16, 4, backwards).run(), 4u);

    const std::vector<Dim> single = {{1, 12345}, {5, 4}, {1, -7}};
    EXPECT_TRUE(Layout::strided(0, 4, single).dims().empty());
}

TEST(Layout, OneBoxIsNoList) {
    const std::vector<Dim> rows = {{3, 20}, {5, 4}};
    EXPECT_TRUE(Layout::gathered({8}, 4, rows).offsets().empty());
    EXPECT_EQ(Layout::gathered({8}, 4, rows).offset(), 8);
    EXPECT_EQ(Layout::gathered({8}, 4, rows).run(), 60u);
    EXPECT_EQ(Layout::gathered({}, 4, rows).size(), 0u);
}

TEST(Layout, RunsThatAreNeighboursAreOnePiece) {
    const Layout layout = Layout::gathered({12, 0, 4, 8, 20, 8}, 4, {});
    std::byte memory[24];
    std::vector<ucp_dt_iov_t> pieces = {{memory + 10, 2}};  // not ours, though next to ours
    layout.pieces(memory, 0, 24, pieces);
    ASSERT_EQ(pieces.size(), 5u);
    EXPECT_EQ(pieces[1].buffer, memory + 12);
    EXPECT_EQ(pieces[2].buffer, memory);
    EXPECT_EQ(pieces[2].length, 12u);
    EXPECT_EQ(pieces[3].buffer, memory + 20);
    EXPECT_EQ(pieces[4].buffer, memory + 8);
}

TEST(Layout, OfNothingHasNoPieces) {
    const std::vector<Dim> empty = {{3, 8}, {0, 4}};
    const Layout layout = Layout::strided(8, 4, empty);
    EXPECT_EQ(layout.size(), 0u);
    EXPECT_EQ(layout.run_count(), 0u);
    EXPECT_TRUE(offsets_of(layout, 0, 0).empty());
    EXPECT_TRUE(layout.fits(0));
}

TEST(LayoutFits, AgreesWithItsPlaces) {
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        const Box box = random_box(random, false);
        const Offsets places = box.places();
        const Layout layout = box.layout();
        const std::uint64_t extent = random() % 250;
        const bool inside = places.empty() || static_cast<std::uint64_t>(*std::max_element(
                                                  places.begin(), places.end())) < extent;
        ASSERT_EQ(layout.fits(extent), inside);
    }
}

TEST(LayoutFits, TakesNothingBelowItsBase) {
    const std::vector<Dim> backwards = {{3, -4}};
    EXPECT_FALSE(Layout::strided(8, 4, backwards).fits(100));
    EXPECT_FALSE(Layout::contiguous(4, -1).fits(100));
    EXPECT_FALSE(Layout::gathered({0, -1, 8}, 4, {}).fits(100));
}

TEST(LayoutFits, IsNotFooledByOverflow) {
    constexpr std::int64_t kFar = INT64_MAX;
    const auto fits = [](std::int64_t offset, std::uint64_t run, std::vector<Dim> dims) {
        return Layout::strided(offset, run, dims).fits(1000);
    };
    EXPECT_FALSE(fits(kFar, 1, {}));
    EXPECT_FALSE(fits(0, UINT64_MAX, {}));
    EXPECT_FALSE(fits(1000, 1, {}));
    EXPECT_FALSE(fits(1, 1000, {}));
    EXPECT_FALSE(fits(0, 1, {{2, kFar}}));
    EXPECT_FALSE(fits(0, 1, {{2, kFar}, {2, 3}}));
    EXPECT_FALSE(fits(0, 1, {{1ull << 61, 4}}));
    EXPECT_FALSE(fits(999, 1, {{2, 1}, {2, 0}}));
    EXPECT_FALSE(fits(500, 1, {{1ull << 40, 1ll << 20}, {1ull << 10, 1ll << 30}}));
    for (const std::int64_t far : {std::int64_t{991}, kFar - 9, kFar, std::int64_t{INT64_MIN}}) {
        const std::vector<Dim> rows = {{2, 5}};
        EXPECT_FALSE(Layout::gathered({0, far, 8}, 5, rows).fits(1000)) << far;
    }
    EXPECT_FALSE(Layout::gathered({0, 1}, UINT64_MAX / 2, {}).fits(1000));
    const std::vector<Dim> tenfold = {{2, 5}};
    EXPECT_TRUE(Layout::gathered({0, 990, 8}, 5, tenfold).fits(1000));
    EXPECT_TRUE(fits(0, 1000, {}));
    EXPECT_TRUE(fits(999, 1, {{1ull << 61, 0}}));  // the same byte again and again
}

TEST(Scatter, FillsThePiecesInTurnAndNoMore) {
    std::byte memory[8] = {};
    const std::byte source[5] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                 std::byte{5}};
    const std::vector<ucp_dt_iov_t> pieces = {{memory + 4, 2}, {memory, 2}, {memory + 6, 2}};
    scatter(source, 5, pieces);
    const std::byte expected[8] = {std::byte{3}, std::byte{4}, {},           {},
                                   std::byte{1}, std::byte{2}, std::byte{5}, {}};
    EXPECT_TRUE(std::equal(memory, memory + 8, expected));
}

}  // namespace
}  // namespace ucxstore::test

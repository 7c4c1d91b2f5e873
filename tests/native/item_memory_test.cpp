#include "client/item_memory.hpp"

#include <gtest/gtest.h>

#include <random>

#include "protocol/wire.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

Bytes joined(const std::vector<ucp_dt_iov_t>& pieces) {
    Bytes bytes;
    for (const ucp_dt_iov_t& piece : pieces) {
        const auto* begin = static_cast<const std::byte*>(piece.buffer);
        bytes.insert(bytes.end(), begin, begin + piece.length);
    }
    return bytes;
}

TEST(Memory, AnyPartOfItIsThatPartOfWhatItJoins) {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        std::vector<Bytes> arrays(random() % 5);
        std::vector<Memory::Part> parts;
        Bytes expected;
        for (Bytes& array : arrays) {
            array = pattern(300, random());
            const std::vector<Dim> dims = {{random() % 4, 70}, {1 + random() % 6, 9}};
            parts.push_back({array.data(), Layout::strided(3, 1 + random() % 9, dims)});
            std::vector<ucp_dt_iov_t> pieces;
            parts.back().layout.pieces(array.data(), 0, parts.back().layout.size(), pieces);
            const Bytes bytes = joined(pieces);
            expected.insert(expected.end(), bytes.begin(), bytes.end());
        }
        const Memory memory(parts);
        ASSERT_EQ(memory.size(), expected.size());
        for (int part = 0; part < 20; ++part) {
            const std::uint64_t begin = random() % (expected.size() + 1);
            const std::uint64_t length = random() % (expected.size() - begin + 1);
            std::vector<ucp_dt_iov_t> pieces;
            memory.pieces(begin, length, pieces);
            const auto from = expected.begin() + static_cast<std::ptrdiff_t>(begin);
            ASSERT_EQ(joined(pieces), Bytes(from, from + static_cast<std::ptrdiff_t>(length)));
        }
    }
}

TEST(Memory, OfOnePartIsCutAsItsLayoutIs) {
    const std::vector<Dim> rows = {{1'000'000, 100}};
    const Layout layout = Layout::strided(0, 4, rows);
    EXPECT_EQ(Memory(nullptr, layout).segment_bytes(), segment_bytes(layout));
    EXPECT_LT(segment_bytes(layout), kSegmentBytes);
}

TEST(Memory, ASmallPartDoesNotMakeSegmentsSmall) {
    const Memory memory(
        {{nullptr, Layout::contiguous(100 << 20)}, {nullptr, Layout::contiguous(4)}});
    EXPECT_EQ(memory.segment_bytes(), kSegmentBytes);
}

TEST(Memory, OfManyPartsHasFewPiecesASegment) {
    for (const std::uint64_t size : {1, 3, 64, 1000}) {
        const std::vector<Memory::Part> parts(200'000, {nullptr, Layout::contiguous(size)});
        const std::uint64_t segment = Memory(parts).segment_bytes();
        EXPECT_GE(segment, kMinSegmentBytes);
        EXPECT_LE(segment / size, kSegmentPieces);
    }
}

TEST(Memory, OfNothingHasNoPieces) {
    for (const Memory& memory : {Memory({}), Memory({{nullptr, {}}, {nullptr, {}}})}) {
        std::vector<ucp_dt_iov_t> pieces;
        memory.pieces(0, 0, pieces);
        EXPECT_EQ(memory.size(), 0u);
        EXPECT_TRUE(pieces.empty());
        EXPECT_EQ(memory.segment_bytes(), kSegmentBytes);
    }
}

}  // namespace
}  // namespace ucxstore::test

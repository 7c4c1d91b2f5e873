// CRC32C by the instruction, by tables, in parts and in any order: all the same, and as others
// compute it.
#include "memory/crc32c.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>

#include "memory/kept_sums.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

// By its definition, a bit at a time.
std::uint32_t by_definition(std::span<const std::byte> bytes) {
    std::uint32_t crc = ~0u;
    for (const std::byte byte : bytes) {
        crc ^= static_cast<std::uint8_t>(byte);
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
        }
    }
    return ~crc;
}

Bytes ascending(bool down) {
    Bytes bytes(32);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(down ? 31 - i : i);
    }
    return bytes;
}

// RFC 3720, B.4, and the check value of the catalogue of parametrised CRCs.
TEST(Crc32c, IsThatOfTheStandard) {
    const std::vector<std::pair<Bytes, std::uint32_t>> known = {
        {Bytes(32, std::byte{0}), 0x8A9136AA}, {Bytes(32, std::byte{0xFF}), 0x62A8AB43},
        {ascending(false), 0x46DD794E},        {ascending(true), 0x113FDB5C},
        {to_bytes("123456789"), 0xE3069283},   {{}, 0},
    };
    for (const auto& [bytes, sum] : known) {
        EXPECT_EQ(crc32c(bytes), sum);
        EXPECT_EQ(crc32c_by_instruction(bytes), sum);
        EXPECT_EQ(crc32c_by_table(bytes), sum);
    }
}

TEST(Crc32c, IsTheSameByInstructionByTableAndByDefinition) {
    const Bytes bytes = pattern(40'000, 3);
    for (std::size_t begin = 0; begin < 9; ++begin) {
        for (std::size_t length = 0; length < 1600; length += 1 + begin) {
            const auto part = std::span(bytes).subspan(begin, length);
            const std::uint32_t sum = by_definition(part);
            ASSERT_EQ(crc32c(part), sum) << begin << " " << length;
            ASSERT_EQ(crc32c_by_instruction(part), sum) << begin << " " << length;
            ASSERT_EQ(crc32c_by_table(part), sum) << begin << " " << length;
        }
        const auto rest = std::span(bytes).subspan(begin);
        EXPECT_EQ(crc32c(rest), by_definition(rest));
    }
}

// Its longest stretches begin at 12 KiB.
TEST(Crc32c, IsTheSameByInstructionForLongTexts) {
    const Bytes bytes = pattern(40'000, 4);
    for (const std::size_t length :
         {12'287, 12'288, 12'289, 13'056, 24'575, 24'576, 36'864, 37'639, 39'990}) {
        for (const std::size_t begin : {0, 1, 7}) {
            const auto part = std::span(bytes).subspan(begin, length);
            EXPECT_EQ(crc32c_by_instruction(part), by_definition(part)) << begin << " " << length;
            const auto first = part.first(length / 3);
            EXPECT_EQ(crc32c_by_instruction(part.subspan(length / 3), crc32c_by_table(first)),
                      by_definition(part))
                << begin << " " << length;
        }
    }
}

TEST(Crc32c, GoesOnFromAPart) {
    const Bytes bytes = pattern(30'000, 5);
    const std::uint32_t whole = crc32c(bytes);
    for (const std::size_t at : {0, 1, 7, 256, 4096, 12'289, 29'999, 30'000}) {
        const auto first = std::span(bytes).first(at);
        const auto second = std::span(bytes).subspan(at);
        EXPECT_EQ(crc32c(second, crc32c(first)), whole) << at;
        EXPECT_EQ(join_crc32c(crc32c(first), crc32c(second), second.size()), whole) << at;
    }
}

TEST(Crc32c, OfFragmentsInAnyOrder) {
    const Bytes bytes = pattern(100'000, 6);
    constexpr std::size_t kFragment = 8'192;
    std::vector<std::size_t> order;
    for (std::size_t at = 0; at < bytes.size(); at += kFragment) {
        order.push_back(at);
    }
    for (int round = 0; round < 3; ++round) {
        RunningSum sum(bytes.size());
        for (const std::size_t at : order) {
            sum.add(at, std::span(bytes).subspan(at, std::min(kFragment, bytes.size() - at)));
        }
        EXPECT_EQ(sum.value(), crc32c(bytes));
        if (round == 0) {
            std::ranges::reverse(order);
        } else {
            std::ranges::rotate(order, order.begin() + 5);
        }
    }
}

TEST(KeptSums, AreThoseOfAnyPart) {
    constexpr std::uint64_t kBlock = KeptSums::kBlock;
    for (const std::uint64_t size : {kBlock, 3 * kBlock, 4 * kBlock + 77}) {
        const Bytes bytes = pattern(size, 9);
        KeptSums sums(bytes);
        for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{5}, kBlock - 1, kBlock}) {
            for (const std::uint64_t less : {std::uint64_t{0}, std::uint64_t{3}, kBlock}) {
                if (begin + less <= size) {
                    const std::uint64_t length = size - begin - less;
                    const auto part = std::span(bytes).subspan(begin, length);
                    EXPECT_EQ(sums.sum(begin, length), crc32c(part)) << begin << " " << length;
                }
            }
        }
    }
}

TEST(KeptSums, AreComputedOnce) {
    Bytes bytes = pattern(2 * KeptSums::kBlock);
    KeptSums sums(bytes);
    const std::uint32_t whole = sums.sum(0, bytes.size());
    bytes[17] ^= std::byte{1};  // as a fault of the memory would: what is kept tells of it
    EXPECT_EQ(sums.sum(0, bytes.size()), whole);
    EXPECT_NE(crc32c(bytes), whole);
}

TEST(Region, ManyThreadsSumOneValue) {
    const auto region = allocate_region(8 * KeptSums::kBlock + 1);
    std::ranges::copy(pattern(region->size()), region->data());
    const std::uint32_t sum = crc32c(std::span<const std::byte>(region->data(), region->size()));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] { EXPECT_EQ(region->checksum(0, region->size()), sum); });
    }
    for (std::thread& one : threads) {
        one.join();
    }
}

}  // namespace
}  // namespace ucxstore::test

#include "ucx/fence.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

Host host_of(std::initializer_list<std::uint8_t> bytes) {
    const std::string packed(bytes.begin(), bytes.end());
    return *Host::of(packed);
}

const Host kV4 = host_of({10, 99, 0, 1});
const Host kNext = host_of({10, 99, 0, 2});
const Host kV6 = host_of({0xfd, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});

bool has(const Prefix& prefix, const Host& host) {
    for (unsigned i = 0; i < prefix.bits; ++i) {
        const auto bit = static_cast<std::uint8_t>(0x80 >> i % 8);
        if (((prefix.host.bytes[i / 8] ^ host.bytes[i / 8]) & bit) != 0) {
            return false;
        }
    }
    return prefix.host.v6 == host.v6;
}

std::ptrdiff_t count_with(const std::vector<Prefix>& prefixes, const Host& host) {
    return std::ranges::count_if(prefixes, [&](const Prefix& one) { return has(one, host); });
}

TEST(FenceTest, AllAddressesAreOnePrefix) {
    for (const bool v6 : {false, true}) {
        EXPECT_EQ(all_but({}, v6), std::vector<Prefix>{{.host = {.v6 = v6}}});
    }
    EXPECT_EQ(all_but({kV6}, false).size(), 1u);
    EXPECT_EQ(all_but({kV4}, true).size(), 1u);
}

TEST(FenceTest, OneHostIsLeftOutOfAsManyPrefixesAsItHasBits) {
    EXPECT_EQ(all_but({kV4}, false).size(), 32u);
    EXPECT_EQ(all_but({kV4, kV4, kV6}, false).size(), 32u);
    EXPECT_EQ(all_but({kV6, kV4}, true).size(), 128u);
}

TEST(FenceTest, EveryOtherAddressIsInOnePrefix) {
    std::mt19937 random(7);
    const std::vector<Host> hosts = {kV4, kNext, kV6};
    for (const bool v6 : {false, true}) {
        const auto prefixes = all_but(hosts, v6);
        EXPECT_TRUE(std::ranges::is_sorted(prefixes));
        for (const Host& host : hosts) {
            EXPECT_EQ(count_with(prefixes, host), 0);
            for (unsigned bit = 0; bit < (v6 ? 128u : 32u) && host.v6 == v6; ++bit) {
                Host other = host;
                other.bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
                EXPECT_EQ(count_with(prefixes, other), std::ranges::count(hosts, other) ? 0 : 1);
            }
        }
        for (int i = 0; i < 200; ++i) {
            Host other{.v6 = v6};
            for (unsigned byte = 0; byte < (v6 ? 16u : 4u); ++byte) {
                other.bytes[byte] = static_cast<std::uint8_t>(random());
            }
            EXPECT_EQ(count_with(prefixes, other), 1);
        }
    }
}

}  // namespace
}  // namespace ucxstore::test

// The hash of contents, by the published values of XXH64.
#include "files/content_hash.hpp"

#include <gtest/gtest.h>

#include <set>

#include "support.hpp"

namespace ucxstore::test {
namespace {

TEST(ContentHash, IsXxh64) {
    EXPECT_EQ(content_hash({}), 0xEF46DB3751D8E999ull);
    EXPECT_EQ(content_hash(to_bytes("a")), 0xD24EC4F1A98C6E5Bull);
    EXPECT_EQ(content_hash(to_bytes("abc")), 0x44BC2CF5AD770999ull);
    EXPECT_EQ(content_hash(to_bytes("Nobody inspects the spammish repetition")),
              0xFBCEA83C8A378BF1ull);
}

TEST(ContentHash, EveryByteAndTheLengthCount) {
    std::set<std::uint64_t> hashes;
    std::size_t count = 0;
    for (std::size_t size = 0; size < 200; ++size, ++count) {
        hashes.insert(content_hash(Bytes(size)));
    }
    Bytes bytes = pattern(150);
    for (std::byte& one : bytes) {
        for (int bit = 0; bit < 8; ++bit, ++count) {
            one ^= static_cast<std::byte>(1 << bit);
            hashes.insert(content_hash(bytes));
            one ^= static_cast<std::byte>(1 << bit);
        }
    }
    EXPECT_EQ(hashes.size(), count);
}

// As two numbers do that change their sign.
TEST(ContentHash, ChangesDoNotCancelOut) {
    Bytes bytes = pattern(256);
    const std::uint64_t before = content_hash(bytes);
    for (const std::size_t at : {7, 39, 71, 103}) {
        bytes[at] ^= std::byte{0x80};
        EXPECT_NE(content_hash(bytes), before) << at;
    }
}

}  // namespace
}  // namespace ucxstore::test

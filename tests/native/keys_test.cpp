#include "protocol/keys.hpp"

#include <gtest/gtest.h>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

TEST(KeyFault, FindsWhatIsNoKey) {
    for (const std::string key : {"a", "a/b", "zarr.json", "c/0/1", ".zarray", "...", "a..b", "ü/€",
                                  "a b", "a\\b", "a/.b/..c"}) {
        EXPECT_FALSE(key_fault(key)) << key;
    }
    EXPECT_FALSE(key_fault(std::string(kMaxKeyBytes, 'k')));
    for (const std::string key : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b",
                                  "./a", "a/.", "a/./b"}) {
        EXPECT_TRUE(key_fault(key)) << key;
    }
    EXPECT_TRUE(key_fault(std::string("a\0b", 3)));
    for (const std::string key : {"caf\xe9", "\xff", "\xc3", "\x80", "\xc0\xaf", "\xed\xa0\x80",
                                  "\xf4\x90\x80\x80", "\xe2\x82/x"}) {
        EXPECT_TRUE(key_fault(key)) << "no UTF-8: " << testing::PrintToString(key);
    }
    EXPECT_TRUE(key_fault(std::string(kMaxKeyBytes + 1, 'k')));
}

TEST(PrefixFault, FindsWhatBeginsNoKey) {
    for (const std::string prefix : {"", "a/", "a/b/", "ü/"}) {
        EXPECT_FALSE(prefix_fault(prefix, true)) << prefix;
        EXPECT_FALSE(prefix_fault(prefix, false)) << prefix;
    }
    for (const std::string prefix :
         {"/", "a", "a/b", "../", "./", "a//", "a/../", "/a/", "\xff/"}) {
        EXPECT_TRUE(prefix_fault(prefix, true)) << prefix;
    }
    for (const std::string prefix : {"a", "a/b", ".", "a/."}) {
        EXPECT_FALSE(prefix_fault(prefix, false)) << prefix;
    }
    for (const std::string prefix : {"/a", "../a", "a//b", "a/../b", "./a"}) {
        EXPECT_TRUE(prefix_fault(prefix, false)) << prefix;
    }
    EXPECT_TRUE(prefix_fault(std::string("a\0", 2), false));
    EXPECT_TRUE(prefix_fault(std::string(kMaxKeyBytes + 1, 'k'), false));
}

}  // namespace
}  // namespace ucxstore::test

// What a grant opens.
#include "sessions/bounds.hpp"

#include <gtest/gtest.h>

#include "protocol/keys.hpp"
#include "rooms.hpp"

namespace ucxstore::test {
namespace {

std::int64_t in(std::chrono::seconds seconds) {
    const auto end = std::chrono::system_clock::now() + seconds;
    return std::chrono::duration_cast<std::chrono::seconds>(end.time_since_epoch()).count();
}

TEST(Bounds, WithoutAGrantEverythingIsOpen) {
    const Bounds all;
    for (const char* key : {"", "a", "run-1/", "__ucxscratch__/"}) {
        EXPECT_FALSE(all.read_fault(key));
        EXPECT_FALSE(all.write_fault(key));
        EXPECT_TRUE(all.may_see(key));
    }
    EXPECT_FALSE(all.expiry_fault());
    EXPECT_FALSE(all.left(std::chrono::seconds(1)));
}

TEST(Bounds, APrefixEndsAtItsSlash) {
    const Bounds run("run-1/", false, std::nullopt);
    for (const char* key : {"run-1/", "run-1/a", "run-1/b/c"}) {
        EXPECT_FALSE(run.read_fault(key)) << key;
        EXPECT_FALSE(run.write_fault(key)) << key;
        EXPECT_TRUE(run.may_see(key)) << key;
    }
    for (const char* key : {"", "r", "run-1", "run-17/a", "run-10/", "x/run-1/a", "Run-1/a"}) {
        EXPECT_EQ(*run.read_fault(key), "is outside of the grant, which opens 'run-1/'") << key;
        EXPECT_TRUE(run.write_fault(key)) << key;
        EXPECT_FALSE(run.may_see(key)) << key;
    }
}

TEST(Bounds, AReaderChangesNothing) {
    const Bounds reader("", true, std::nullopt);
    EXPECT_FALSE(reader.read_fault("a"));
    EXPECT_EQ(*reader.write_fault("a"), "was not changed: the grant opens everything, read-only");
    EXPECT_TRUE(reader.may_see(""));
}

TEST(Bounds, AnEnd) {
    const Bounds before("a/", true, in(std::chrono::hours(1)));
    EXPECT_FALSE(before.read_fault("a/b"));
    EXPECT_FALSE(before.expiry_fault());
    EXPECT_FALSE(before.may_see("a/")) << "what is shown cannot be taken back";
    const auto left = before.left(std::chrono::seconds(10));
    EXPECT_GT(*left, std::chrono::minutes(59));
    EXPECT_LE(*left, std::chrono::minutes(60) + std::chrono::seconds(10));

    const Bounds after("a/", false, 0);
    EXPECT_EQ(*after.read_fault("a/b"),
              "was refused: the grant has expired, it opened 'a/', until 1970-01-01 00:00:00 UTC");
    EXPECT_TRUE(after.write_fault("a/b"));
    EXPECT_EQ(*after.left(std::chrono::seconds(10)), std::chrono::seconds(0));
}

TEST(Bounds, AnEndFarAwayOverflowsNothing) {
    for (const std::int64_t end : {std::int64_t{253402300799}, std::int64_t{INT64_MAX}}) {
        const Bounds bounds("", false, end);
        EXPECT_FALSE(bounds.expiry_fault());
        EXPECT_GT(*bounds.left(std::chrono::seconds(10)), std::chrono::hours(24));
    }
    EXPECT_TRUE(Bounds("", false, INT64_MIN).expiry_fault());
}

TEST(Bounds, AnOwnerOperatesAndOthersDoNot) {
    EXPECT_FALSE(Bounds().operate_fault());
    EXPECT_FALSE(Bounds("", false, std::nullopt, Role::owner).operate_fault());
    EXPECT_EQ(*Bounds("", false, std::nullopt).operate_fault(),
              "is for operators alone, and this client has no secret, and is not of the server's "
              "user");
    EXPECT_EQ(*Bounds("a/", false, std::nullopt).operate_fault(),
              "is for operators alone, and the grant opens 'a/'");
    EXPECT_TRUE(Bounds("", true, std::nullopt).operate_fault());
    EXPECT_TRUE(Bounds("", false, in(std::chrono::hours(1))).operate_fault());
}

TEST(Bounds, AnOperatorOpensNoValues) {
    const Bounds bounds("", false, std::nullopt, Role::op);
    EXPECT_FALSE(bounds.operate_fault());
    EXPECT_FALSE(bounds.stats_fault());
    for (const char* key : {"", "a", "__ucxscratch__/"}) {
        EXPECT_EQ(*bounds.read_fault(key),
                  "is outside of the grant, which opens requests of operators");
        EXPECT_TRUE(bounds.write_fault(key));
        EXPECT_FALSE(bounds.may_see(key));
    }
    const Bounds after("", false, 0, Role::op);
    EXPECT_TRUE(after.operate_fault());
    EXPECT_TRUE(after.stats_fault());
}

TEST(Keys, TheFolderOfASpace) {
    EXPECT_EQ(folder_of_space("a/b"), "");
    EXPECT_EQ(folder_of_space("__ucxscratch__/ab/c/d"), "__ucxscratch__/ab/");
    EXPECT_EQ(folder_of_space("__ucxscratch__/ab"), "__ucxscratch__/ab");
}

}  // namespace
}  // namespace ucxstore::test

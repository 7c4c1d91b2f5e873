#include "cache/changes.hpp"

#include <gtest/gtest.h>

#include "remote_fixture.hpp"

namespace ucxstore {
namespace {

using test::Bytes;
using test::pattern;
using test::region;

TEST(Changes, AKeyIsInDoubtUntilAChangeIsSettled) {
    Changes changes;
    changes.doubt("a/k");
    changes.doubt("b");
    EXPECT_TRUE(changes.includes("a/k"));
    changes.begin("a/k");
    EXPECT_TRUE(changes.end("a/k")) << "it is the only change that is under way";
    EXPECT_TRUE(changes.includes("a/k"));
    changes.settle("a/k");
    EXPECT_FALSE(changes.includes("a/k"));
    EXPECT_TRUE(changes.includes("b"));
}

TEST(Changes, ARemovalOfAPrefixSettlesAllBelow) {
    Changes changes;
    changes.doubt("a/b/k");
    changes.doubt_prefix("a/b/");
    EXPECT_TRUE(changes.includes("a/b/other"));
    EXPECT_FALSE(changes.includes("a/c"));
    changes.settle("a/b/k");
    EXPECT_TRUE(changes.includes("a/b/k"));
    changes.settle_prefix("a/");
    EXPECT_FALSE(changes.includes("a/b/k"));
    EXPECT_FALSE(changes.includes("a/b/other"));
}

class DoubtTest : public testing::Test {
  protected:
    template <typename Wanted>
    Calls::Ticket taken() {
        const auto calls = source_.calls().take();
        EXPECT_EQ(calls.size(), 1u);
        EXPECT_TRUE(std::holds_alternative<Wanted>(calls.at(0).second));
        return calls.at(0).first;
    }
    Outcome<bool> write(const Bytes& value, CallResult result) {
        Outcome<bool> told;
        source_.write("k", region(value), false, [&](auto outcome) { told = std::move(outcome); });
        source_.calls().answer(taken<PutCall>(), std::move(result));
        return told;
    }
    bool is_kept() { return source_.find("k") != nullptr; }
    void read(const Bytes& value) {
        source_.fetch("k", {}, [](auto) {});
        source_.calls().answer(taken<GetCall>(), Object{region(value), "tag", value.size()});
    }

    CachedSource source_{1 << 20, 0};
};

TEST_F(DoubtTest, WhatIsReadOfAKeyInDoubtIsNotKept) {
    EXPECT_FALSE(write(pattern(10), Stored{true, "old"}).unknown);
    EXPECT_TRUE(is_kept());
    const auto told = write(pattern(20), Failure{"no answer", true});
    EXPECT_TRUE(told.unknown);
    EXPECT_EQ(told.failure, "no answer");
    EXPECT_FALSE(is_kept());
    read(pattern(10));
    EXPECT_FALSE(is_kept()) << "the other value may still come";
    write(pattern(30), Stored{true, "new"});
    EXPECT_TRUE(is_kept());
}

TEST_F(DoubtTest, AFailureWithAKnownEndLeavesNone) {
    EXPECT_FALSE(write(pattern(20), Failure{"denied"}).unknown);
    read(pattern(10));
    EXPECT_TRUE(is_kept());
}

TEST_F(DoubtTest, OfWhatWasTakenNobodyKnowsTheEndWhenAllIsClosed) {
    std::vector<bool> unknown;
    const auto note = [&](auto outcome) { unknown.push_back(outcome.unknown); };
    source_.write("k", region(pattern(10)), false, note);
    taken<PutCall>();
    source_.close("the end");
    EXPECT_EQ(unknown, std::vector<bool>{true});
    source_.write("k", region(pattern(10)), false, note);
    EXPECT_EQ(unknown, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace ucxstore

// For how long a remote storage believes what is in its cache, and what it does then; by a clock
// that the test sets.
#include "blocks_fixture.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kFreshness = 10s;

class FreshTest : public BlocksTest {
  protected:
    using Time = std::shared_ptr<Cache::Clock::time_point>;

    explicit FreshTest(std::chrono::milliseconds freshness = kFreshness,
                       const Time& now = std::make_shared<Cache::Clock::time_point>())
        : BlocksTest(std::make_shared<CachedSource>(
              4 << 20, kBlock, freshness, CachedSource::kWriteBytes, [now] { return *now; })),
          now_(now) {}

    void pass(std::chrono::milliseconds time) { *now_ += time; }
    void cache(const std::string& text, const std::string& etag) {
        fetch("k");
        answer(taken<GetCall>(), SourceObject{region(text), etag, text.size()});
    }
    // Some blocks from kFar on, of the large object.
    void cache_blocks(std::uint64_t count, const Bytes& value, const std::string& etag) {
        fetch_part(kFar, kFar + count * kBlock);
        EXPECT_EQ(serve(value, etag), kHead);
        serve(value, etag);
    }
    void head(const std::string& etag, std::uint64_t size) {
        answer(taken<HeadCall>(), SourceObject{nullptr, etag, size});
    }

    const Time now_;
    const Bytes other_ = pattern(10 * kBlock + 100, 7);
};

TEST_F(FreshTest, IsBelievedForTheTime) {
    cache("old", "1");
    pass(kFreshness - 1ms);
    EXPECT_EQ(text_of(remote_->find("k")), "old");
    EXPECT_TRUE(nothing_asked());
    pass(1ms);
    EXPECT_EQ(remote_->find("k"), nullptr);
}

TEST_F(FreshTest, StaysWhereItIsConfirmed) {
    cache("old", "1");
    const auto value = remote_->find("k");
    pass(kFreshness);
    const auto fetched = fetch("k");
    const auto joined = fetch("k");
    head("1", 3);
    EXPECT_EQ(fetched->outcome->value, value) << "the same memory, and so the same version";
    EXPECT_EQ(joined->outcome->value, value);
    EXPECT_TRUE(nothing_asked());
    pass(kFreshness - 1ms);
    EXPECT_EQ(remote_->find("k"), value) << "for as long again";
    pass(1ms);
    EXPECT_EQ(remote_->find("k"), nullptr);
}

TEST_F(FreshTest, AnotherOneTakesItsPlace) {
    cache("old", "1");
    const auto before = remote_->find("k");
    pass(kFreshness);
    const auto fetched = fetch("k");
    head("2", 3);
    answer(taken<GetCall>(), SourceObject{region("new"), "2", 3});
    EXPECT_EQ(fetched->text(), "new");
    EXPECT_EQ(text_of(remote_->find("k")), "new");
    EXPECT_NE(fetched->outcome->value->version(), before->version());
    EXPECT_EQ(text_of(before), "old") << "to those who are being sent it";
}

TEST_F(FreshTest, WhatHasGoneIsGone) {
    cache("old", "1");
    pass(kFreshness);
    const auto fetched = fetch("k");
    answer(taken<HeadCall>(), Missing{});
    EXPECT_EQ(fetched->text(), "none");
    EXPECT_EQ(remote_->cached_bytes(), 0u);
}

TEST_F(FreshTest, BlocksOfWhatHasGoneAreGone) {
    cache_blocks(2, value_, "1");
    pass(kFreshness);
    const auto fetched = fetch_part(kFar, kFar + 1);
    answer(taken<HeadCall>(), Missing{});
    EXPECT_EQ(fetched->text(), "none");
    EXPECT_EQ(remote_->cached_bytes(), 0u);
}

// A stale value is never given in place of an error; nor is it lost by one.
TEST_F(FreshTest, AFailureToAskIsTold) {
    cache("old", "1");
    const auto value = remote_->find("k");
    pass(kFreshness);
    const auto failed = fetch("k");
    answer(taken<HeadCall>(), Failure{"denied"});
    EXPECT_EQ(failed->text(), "failed: denied");
    EXPECT_EQ(remote_->find("k"), nullptr);
    const auto fetched = fetch("k");
    head("1", 3);
    EXPECT_EQ(fetched->outcome->value, value);
}

TEST_F(FreshTest, AWriteIsNewerThanWhatIsToldOfTheTimeBefore) {
    cache("old", "1");
    pass(kFreshness);
    const auto fetched = fetch("k");
    const auto asked = taken<HeadCall>();
    write("k", "new");
    answer(taken<PutCall>(), Stored{true, "2"});
    answer(asked, SourceObject{nullptr, "1", 3});
    EXPECT_EQ(fetched->text(), "new");
    EXPECT_EQ(text_of(remote_->find("k")), "new");
    EXPECT_TRUE(nothing_asked());
}

TEST_F(FreshTest, BlocksStayWhereTheObjectIsConfirmed) {
    cache_blocks(2, value_, "1");
    pass(kFreshness - 1ms);
    EXPECT_NE(remote_->find("k", part(kFar, kFar + 2 * kBlock)), nullptr);
    pass(1ms);
    EXPECT_EQ(remote_->find("k", part(kFar, kFar + 2 * kBlock)), nullptr);
    const auto fetched = fetch_part(kFar, kFar + 3 * kBlock);
    EXPECT_EQ(serve(value_, "1"), kHead);
    EXPECT_EQ(serve(value_, "1"), (std::vector<Part>{{kFar + 2 * kBlock, kFar + 3 * kBlock}}));
    EXPECT_EQ(bytes_of(*fetched, kFar, 3 * kBlock), cut(value_, kFar, 3 * kBlock));
    EXPECT_NE(remote_->find("k", part(kFar, kFar + 3 * kBlock)), nullptr);
}

TEST_F(FreshTest, BlocksOfTwoValuesAreNeverRead) {
    cache_blocks(1, value_, "1");
    const auto before = fetch_part(kFar, kFar + kBlock);
    pass(kFreshness);
    const auto fetched = fetch_part(kFar, kFar + 2 * kBlock);
    EXPECT_EQ(serve(other_, "2"), kHead);
    EXPECT_EQ(serve(other_, "2"), (std::vector<Part>{{kFar, kFar + 2 * kBlock}}));
    EXPECT_EQ(bytes_of(*fetched, kFar, 2 * kBlock), cut(other_, kFar, 2 * kBlock));
    EXPECT_EQ(bytes_of(*before, kFar, kBlock), cut(value_, kFar, kBlock));
    EXPECT_NE(fetched->outcome->value->version(), before->outcome->value->version());
}

// One reader waits for a block of the old value when another one learns that there is a new one.
class FreshReaders : public FreshTest {
  protected:
    void SetUp() override {
        cache_blocks(1, value_, "1");
        waiting_ = fetch_part(kFar, kFar + 2 * kBlock);
        asked_ = taken<GetCall>();
        pass(kFreshness);
        const auto next = fetch_part(kFar, kFar + kBlock);
        EXPECT_EQ(serve(other_, "2"), kHead);
        EXPECT_EQ(serve(other_, "2"), (std::vector<Part>{{kFar, kFar + kBlock}}));
        EXPECT_EQ(bytes_of(*next, kFar, kBlock), cut(other_, kFar, kBlock));
    }

    std::shared_ptr<Fetched> waiting_;
    Calls::Ticket asked_ = 0;
};

TEST_F(FreshReaders, TheOldBlockIsForWhoWaitsForItAlone) {
    answer(asked_, SourceObject{region(cut(value_, kFar + kBlock, kBlock)), "1", value_.size()});
    EXPECT_EQ(bytes_of(*waiting_, kFar, 2 * kBlock), cut(value_, kFar, 2 * kBlock));
    const auto last = fetch_part(kFar, kFar + 2 * kBlock);
    EXPECT_EQ(serve(other_, "2"), (std::vector<Part>{{kFar + kBlock, kFar + 2 * kBlock}}));
    EXPECT_EQ(bytes_of(*last, kFar, 2 * kBlock), cut(other_, kFar, 2 * kBlock));
}

TEST_F(FreshReaders, OneWhoIsToldOfTheChangeReadsAllAnew) {
    answer(asked_, Changed{});
    EXPECT_EQ(serve(other_, "2"), (std::vector<Part>{{kFar + kBlock, kFar + 2 * kBlock}}));
    EXPECT_EQ(bytes_of(*waiting_, kFar, 2 * kBlock), cut(other_, kFar, 2 * kBlock));
}

class NeverFresh : public FreshTest {
  protected:
    NeverFresh() : FreshTest(0ms) {}
};

// What was asked before a get may be what was so before it.
TEST_F(NeverFresh, EveryGetAsksForItself) {
    cache("old", "1");
    EXPECT_EQ(remote_->find("k"), nullptr);
    const auto first = fetch("k");
    const auto first_asked = taken<HeadCall>();
    const auto second = fetch("k");
    const auto second_asked = taken<HeadCall>();
    answer(second_asked, SourceObject{nullptr, "2", 3});
    answer(taken<GetCall>(), SourceObject{region("new"), "2", 3});
    EXPECT_EQ(second->text(), "new");
    answer(first_asked, SourceObject{nullptr, "1", 3});
    answer(taken<GetCall>(), SourceObject{region("new"), "2", 3});
    EXPECT_EQ(first->text(), "new") << "there is no old one any more";
}

class EverFresh : public FreshTest {
  protected:
    EverFresh() : FreshTest(CachedSource::kForEver) {}
};

TEST_F(EverFresh, NothingIsAskedAgain) {
    cache("old", "1");
    pass(std::chrono::hours(24 * 365 * 100));
    EXPECT_EQ(text_of(remote_->find("k")), "old");
    const auto fetched = fetch("k");
    EXPECT_EQ(fetched->text(), "old");
    EXPECT_TRUE(nothing_asked());
}

}  // namespace
}  // namespace ucxstore::test

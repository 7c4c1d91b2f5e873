// What a remote storage sends without asking, where other servers write to its source, too.
#include "cache/lease.hpp"

#include "base/boot_clock.hpp"
#include "blocks_fixture.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kMinute = 60'000'000'000;

class LeaseTest : public RemoteTest {
  protected:
    void cache(const std::string& key, const std::string& text, const std::string& etag) {
        fetch(key);
        answer(taken<GetCall>(), SourceObject{region(text), etag, text.size()});
        EXPECT_EQ(text_of(remote_->find(key)), text);
    }
};

TEST_F(LeaseTest, NothingIsSentUnaskedOnceItIsOver) {
    remote_->set_lease_end(boot_nanoseconds() + kMinute);
    cache("k", "old", "1");
    remote_->set_lease_end(boot_nanoseconds());
    EXPECT_EQ(remote_->find("k"), nullptr);
    EXPECT_FALSE(remote_->believes("k"));
    const auto fetched = fetch("k");
    const auto other = fetch("k");  // it may have begun after a change that the first has not seen
    const auto calls = remote_->calls().take();
    ASSERT_EQ(calls.size(), 2u);
    for (const auto& [ticket, call] : calls) {
        EXPECT_TRUE(std::holds_alternative<HeadCall>(call));
        answer(ticket, SourceObject{nullptr, "1", 3});
    }
    EXPECT_EQ(fetched->text(), "old");
    EXPECT_EQ(other->text(), "old");
    remote_->set_lease_end(boot_nanoseconds() + kMinute);
    EXPECT_EQ(text_of(remote_->find("k")), "old");
}

TEST_F(LeaseTest, WhatChangesElsewhereIsAskedForUntilItHasChanged) {
    cache("k", "old", "1");
    cache("p/k", "other", "1");
    fetch("p/2");
    const auto before = taken<GetCall>();
    remote_->begin_asking({{"k"}, {"p/"}});
    EXPECT_EQ(remote_->find("k"), nullptr);
    EXPECT_EQ(remote_->find("p/k"), nullptr);
    EXPECT_FALSE(may_be_kept(before, SourceObject{region("old"), "1", 3}));
    const auto fetched = fetch("k");
    const auto meanwhile = taken<GetCall>();
    EXPECT_FALSE(may_be_kept(meanwhile, SourceObject{region("old"), "1", 3}));
    EXPECT_EQ(fetched->text(), "old") << "the source has it";
    fetch("k");
    const auto until_the_end = taken<GetCall>();
    remote_->end_asking({{"k"}, {"p/"}});
    EXPECT_FALSE(may_be_kept(until_the_end, SourceObject{region("old"), "1", 3}));
    EXPECT_EQ(remote_->find("k"), nullptr);
    cache("k", "new", "2");
    cache("p/k", "new", "2");
}

TEST_F(LeaseTest, ARequestWhosePlaceAnotherHasTakenIsNotKept) {
    remote_->set_lease_end(boot_nanoseconds() + kMinute);
    fetch("k");
    const auto first = taken<GetCall>();
    remote_->set_lease_end(boot_nanoseconds());
    fetch("k");  // joins none
    const auto second = taken<GetCall>();
    remote_->set_lease_end(boot_nanoseconds() + kMinute);
    remote_->begin_asking({{"k"}, {}});
    remote_->end_asking({{"k"}, {}});
    EXPECT_FALSE(may_be_kept(second, SourceObject{region("old"), "1", 3}));
    EXPECT_FALSE(may_be_kept(first, SourceObject{region("old"), "1", 3}));
    EXPECT_EQ(remote_->find("k"), nullptr);
}

TEST_F(LeaseTest, AWriteIsKeptOnlyIfItsServerSaysSo) {
    write("k", "mine");
    EXPECT_TRUE(may_be_kept(taken<PutCall>(), Stored{true, "1"}));
    EXPECT_EQ(text_of(remote_->find("k")), "mine");
    write("k", "mine again");
    EXPECT_FALSE(may_be_kept(taken<PutCall>(), Stored{true, "2", false}));
    EXPECT_EQ(remote_->find("k"), nullptr) << "nobody knows which was the last";
}

TEST_F(LeaseTest, WhatWasFetchedBeforeALeaseBeganIsNotKept) {
    cache("k", "old", "1");
    fetch("other");
    const auto asked = taken<GetCall>();
    remote_->forget_all();
    EXPECT_FALSE(may_be_kept(asked, SourceObject{region("old"), "1", 3}));
    EXPECT_EQ(remote_->find("k"), nullptr);
    EXPECT_EQ(remote_->find("other"), nullptr);
}

}  // namespace
}  // namespace ucxstore::test

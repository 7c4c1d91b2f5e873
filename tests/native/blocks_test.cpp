// Parts of large objects in a remote storage: found out about, and fetched by blocks.
#include <algorithm>
#include <utility>

#include "blocks_fixture.hpp"

namespace ucxstore::test {
namespace {

TEST_F(BlocksTest, OnlyTheBlocksThatAreWantedAreFetched) {
    const std::uint64_t begin = 2 * kBlock - 10;
    const auto fetched = fetch_part(begin, begin + 20);
    EXPECT_EQ(serve(value_, "e"), kHead);
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{kBlock, 3 * kBlock}})) << "in one request";
    EXPECT_EQ(fetched->outcome->value->size(), value_.size());
    EXPECT_EQ(bytes_of(*fetched, begin, 20), cut(value_, begin, 20));
    EXPECT_NE(remote_->find("k", part(kBlock, 3 * kBlock)), nullptr);
    EXPECT_EQ(remote_->find("k", part(kBlock, 3 * kBlock + 1)), nullptr);

    // What is there is not fetched again, and blocks of several requests make one value.
    const auto more = fetch_part(0, 4 * kBlock);
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{0, kBlock}, {3 * kBlock, 4 * kBlock}}));
    EXPECT_EQ(bytes_of(*more, 0, 4 * kBlock), cut(value_, 0, 4 * kBlock));
    EXPECT_EQ(more->outcome->value->version(), fetched->outcome->value->version());
}

TEST_F(BlocksTest, TheLastBlockIsShort) {
    const auto fetched = std::make_shared<Fetched>();
    remote_->fetch("k", std::vector<Range>{{Range::Kind::suffix, 8, 0}},
                   [fetched](auto outcome) { fetched->outcome = std::move(outcome); });
    serve(value_, "e");
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{10 * kBlock, value_.size()}}));
    EXPECT_EQ(bytes_of(*fetched, value_.size() - 8, 8), cut(value_, value_.size() - 8, 8));
}

TEST_F(BlocksTest, ManyAskForOneBlockOnce) {
    const auto first = fetch_part(kFar, kFar + 10);
    const auto second = fetch_part(kFar + 5, kFar + 15);
    EXPECT_EQ(serve(value_, "e"), kHead);
    const auto third = fetch_part(kFar + kBlock - 1, kFar + kBlock + 1);
    EXPECT_EQ(serve(value_, "e"),
              (std::vector<Part>{{kFar, kFar + kBlock}, {kFar + kBlock, kFar + 2 * kBlock}}));
    EXPECT_EQ(bytes_of(*first, kFar, 10), cut(value_, kFar, 10));
    EXPECT_EQ(bytes_of(*second, kFar + 5, 10), cut(value_, kFar + 5, 10));
    EXPECT_EQ(bytes_of(*third, kFar + kBlock - 1, 2), cut(value_, kFar + kBlock - 1, 2));
}

TEST_F(BlocksTest, WhatIsWantedMostlyIsFetchedWhole) {
    const auto fetched = fetch_part(0, 6 * kBlock);
    serve(value_, "e");
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{0, value_.size()}}));
    EXPECT_FALSE(fetched->outcome->value->pieced());
}

// Nor is any of it asked for twice.
TEST_F(BlocksTest, WhatIsThereOrOnItsWayIsNotFetchedAgainWithTheRest) {
    const auto end = fetch_part(10 * kBlock, 10 * kBlock + 1);
    serve(value_, "e");
    const auto rest = fetch_part(0, 10 * kBlock);
    EXPECT_EQ(serve(value_, "e"),
              (std::vector<Part>{
                  {10 * kBlock, value_.size()}, {0, 8 * kBlock}, {8 * kBlock, 10 * kBlock}}));
    EXPECT_EQ(bytes_of(*rest, 0, 10 * kBlock), cut(value_, 0, 10 * kBlock));

    remote_->call(RemoveCall{{"k"}}, [](auto) {});
    answer(taken<RemoveCall>(), Missing{});
    const auto most = fetch_part(0, 6 * kBlock);
    serve(value_, "e");
    const auto part = fetch_part(kFar, kFar + 10);
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{0, value_.size()}}));
    EXPECT_EQ(bytes_of(*part, kFar, 10), cut(value_, kFar, 10));
}

TEST_F(BlocksTest, WhereNothingIsKnownTheFirstBlocksTell) {
    // All of an object that is not large.
    const Bytes small = pattern(2 * kBlock);
    const auto all = fetch_part(0, 1);
    EXPECT_EQ(serve(small, "e"), (std::vector<Part>{{0, 2 * kBlock}}));
    EXPECT_FALSE(all->outcome->value->pieced());
    EXPECT_NE(remote_->find("k"), nullptr);
    // Of a large one, what it is, and its first blocks.
    remote_->call(RemoveCall{{"k"}}, [](auto) {});
    answer(taken<RemoveCall>(), Missing{});
    const auto first = fetch_part(0, 10);
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{0, 2 * kBlock}}));
    EXPECT_EQ(bytes_of(*first, 0, 10), cut(value_, 0, 10));
    const auto more = fetch_part(2 * kBlock - 1, 2 * kBlock + 1);
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{2 * kBlock, 3 * kBlock}}));
    EXPECT_EQ(bytes_of(*more, 2 * kBlock - 1, 2), cut(value_, 2 * kBlock - 1, 2));
}

TEST_F(BlocksTest, ThoseWithoutATagAreFetchedWhole) {
    for (const char* etag : {"", "W/\"weak\""}) {
        remote_->call(RemoveCall{{"k"}}, [](auto) {});
        answer(taken<RemoveCall>(), Missing{});
        const auto fetched = fetch_part(0, 1);
        serve(value_, etag);
        EXPECT_EQ(serve(value_, etag), (std::vector<Part>{{0, value_.size()}}));
        EXPECT_EQ(bytes_of(*fetched, 0, 1), cut(value_, 0, 1));
    }
}

TEST_F(BlocksTest, ABoxWantsTheBlocksThatItTouches) {
    const std::vector<Dim> dims = {{2, static_cast<std::int64_t>(8 * kBlock)}};
    const auto fetched = std::make_shared<Fetched>();
    remote_->fetch("k", Layout::strided(5, 10, dims),
                   [fetched](auto outcome) { fetched->outcome = std::move(outcome); });
    serve(value_, "e");
    EXPECT_EQ(serve(value_, "e"), (std::vector<Part>{{0, kBlock}, {8 * kBlock, 9 * kBlock}}));
    EXPECT_EQ(bytes_of(*fetched, 8 * kBlock + 5, 10), cut(value_, 8 * kBlock + 5, 10));
}

TEST_F(BlocksTest, WhatIsNotInTheValueNeedsNoBlock) {
    const auto fetched = fetch_part(value_.size() + 5, value_.size() + 10);
    serve(value_, "e");
    EXPECT_TRUE(nothing_asked());
    EXPECT_EQ(fetched->outcome->value->size(), value_.size());
    EXPECT_EQ(error_of([&] { bytes_of(*fetched, 0, 1); }), ErrorKind::storage)
        << "and a block that is not there is no memory to read";
}

// Blocks of two values are never sent as one.
TEST_F(BlocksTest, AnObjectThatChangesBetweenBlocksIsReadAnew) {
    const auto first = fetch_part(kFar, kFar + 10);
    serve(value_, "old");
    serve(value_, "old");
    const Bytes changed = pattern(12 * kBlock, 7);
    const std::uint64_t next = kFar + kBlock;
    const auto both = fetch_part(next - 5, next + 5);
    EXPECT_EQ(serve(changed, "new"), (std::vector<Part>{{next, next + kBlock}}));
    EXPECT_EQ(serve(changed, "new"), kHead);
    EXPECT_EQ(serve(changed, "new"), (std::vector<Part>{{kFar, next + kBlock}}));
    EXPECT_EQ(bytes_of(*both, next - 5, 10), cut(changed, next - 5, 10));
    EXPECT_NE(both->outcome->value->version(), first->outcome->value->version());
}

TEST_F(BlocksTest, OneThatKeepsChangingIsAFailure) {
    const auto fetched = fetch_part(kFar, kFar + 10);
    for (int i = 0; i < 20 && !fetched->outcome; ++i) {
        serve(value_, std::to_string(i));
    }
    EXPECT_EQ(fetched->text(), "failed: the object is being replaced again and again");
    EXPECT_TRUE(nothing_asked());
}

TEST_F(BlocksTest, OneThatGoesMeanwhileIsMissing) {
    const auto fetched = fetch_part(kFar, kFar + 10);
    serve(value_, "e");
    answer(taken<GetCall>(), Missing{});
    answer(taken<HeadCall>(), Missing{});
    EXPECT_EQ(fetched->text(), "none");
}

TEST_F(BlocksTest, FailuresAreTold) {
    const auto unknown = fetch_part(kFar, kFar + 10);
    answer(taken<HeadCall>(), Failure{"denied"});
    EXPECT_EQ(unknown->text(), "failed: denied");
    const auto known = fetch_part(kFar, kFar + 10);
    serve(value_, "e");
    answer(taken<GetCall>(), Failure{"throttled"});
    EXPECT_EQ(known->text(), "failed: throttled");
    const auto again = fetch_part(kFar, kFar + 10);
    serve(value_, "e");
    EXPECT_EQ(bytes_of(*again, kFar, 10), cut(value_, kFar, 10));
}

TEST_F(BlocksTest, APartThatIsShortOrOfAnotherTagIsNotTaken) {
    const auto fetched = fetch_part(kFar, kFar + 10);
    serve(value_, "e");
    answer(taken<GetCall>(), SourceObject{region(Bytes(5)), "e"});
    serve(value_, "e");
    answer(taken<GetCall>(), SourceObject{region(Bytes(kBlock)), "other"});
    serve(value_, "e");
    serve(value_, "e");
    EXPECT_EQ(bytes_of(*fetched, kFar, 10), cut(value_, kFar, 10));
}

TEST_F(BlocksTest, AWriteLeavesNoBlockOfTheOldValue) {
    const auto before = fetch_part(kFar, kFar + 10);
    serve(value_, "old");
    const auto slow = remote_->calls().take();
    const auto written = write("k", std::string(3 << 20, 'x'));  // more than the cache holds
    answer(taken<PutCall>(), Stored{true, "new"});
    const auto after = fetch_part(kFar, kFar + 10);
    EXPECT_FALSE(
        may_be_kept(slow.at(0).first, SourceObject{region(cut(value_, kFar, kBlock)), "old"}));
    EXPECT_EQ(bytes_of(*before, kFar, 10), cut(value_, kFar, 10));
    const Bytes now(3 << 20, std::byte{'x'});
    EXPECT_EQ(serve(now, "new"), kHead);
    EXPECT_EQ(serve(now, "new"), (std::vector<Part>{{kFar, kFar + kBlock}}));
    EXPECT_EQ(bytes_of(*after, kFar, 10), cut(now, kFar, 10));
}

// And with a server in front: what is sent comes from several blocks.
TEST_F(BlocksTest, AServerSendsFromSeveralBlocks) {
    Loopback both{remote_};
    const auto get = [&](Selection selection) {
        const auto operation = get_operation({{"k", std::move(selection)}});
        both.submit(operation);
        EXPECT_TRUE(eventually([&] {
            serve(value_, "e");
            return operation->done();
        }));
        finish(operation);
        return reply_of(*operation);
    };
    EXPECT_EQ(get(part(kBlock - 100, 4 * kBlock + 1)), cut(value_, kBlock - 100, 3 * kBlock + 101));
    // So small that it is packed; and two ranges, and a box across blocks.
    EXPECT_EQ(get(part(2 * kBlock - 5, 2 * kBlock + 5)), cut(value_, 2 * kBlock - 5, 10));
    Bytes expected = cut(value_, 7 * kBlock - 1, 2);
    const Bytes second = cut(value_, 0, kBlock);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(get(std::vector<Range>{{Range::Kind::range, 7 * kBlock - 1, 7 * kBlock + 1},
                                     {Range::Kind::range, 0, kBlock}}),
              expected);
    const std::vector<Dim> dims = {{3, static_cast<std::int64_t>(kBlock)}};
    Bytes box;
    for (int i = 0; i < 3; ++i) {
        const Bytes run = cut(value_, kBlock - 8 + static_cast<std::uint64_t>(i) * kBlock, 16);
        box.insert(box.end(), run.begin(), run.end());
    }
    EXPECT_EQ(get(Layout::strided(kBlock - 8, 16, dims)), box);
}

}  // namespace
}  // namespace ucxstore::test

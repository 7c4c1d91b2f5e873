// A storage whose calls take their time: single flight, changes meanwhile, and clients that do not
// wait.
#include "remote_fixture.hpp"

namespace ucxstore::test {
namespace {

TEST_F(RemoteTest, ManyAskForOneValueOnce) {
    const auto first = fetch("k");
    const auto second = fetch("k");
    const auto ticket = taken<GetCall>();
    const auto third = fetch("k");
    EXPECT_TRUE(nothing_asked());
    EXPECT_EQ(first->text(), "not yet");
    answer(ticket, SourceObject{region("v"), "etag"});
    EXPECT_EQ(first->text(), "v");
    EXPECT_EQ(second->outcome->value, first->outcome->value) << "the same memory";
    EXPECT_EQ(third->outcome->value, first->outcome->value);
    EXPECT_EQ(remote_->find("k"), first->outcome->value);
    EXPECT_EQ(remote_->counters().joined, 2u);
    EXPECT_EQ(remote_->calls().answer(ticket, Missing{}), std::nullopt) << "it is answered once";
}

TEST_F(RemoteTest, WhatIsMissingIsAskedForAgain) {
    const auto first = fetch("k");
    answer(taken<GetCall>(), Missing{});
    EXPECT_EQ(first->text(), "none");
    EXPECT_EQ(remote_->find("k"), nullptr);
    const auto second = fetch("k");
    answer(taken<GetCall>(), SourceObject{region("v"), ""});
    EXPECT_EQ(second->text(), "v");
}

TEST_F(RemoteTest, AFailureReachesAllAndIsNotKept) {
    const auto first = fetch("k");
    const auto second = fetch("k");
    answer(taken<GetCall>(), Failure{"denied"});
    EXPECT_EQ(first->text(), "failed: denied");
    EXPECT_EQ(second->text(), "failed: denied");
    const auto third = fetch("k");
    answer(taken<GetCall>(), SourceObject{region("v"), ""});
    EXPECT_EQ(third->text(), "v");
}

TEST_F(RemoteTest, AnAnswerToAnotherQuestionIsAFailure) {
    const auto fetched = fetch("k");
    answer(taken<GetCall>(), Stored{});
    EXPECT_NE(fetched->outcome->failure, "");
}

TEST_F(RemoteTest, TheSameTagIsTheSameVersion) {
    const auto version = [&](const std::string& key, const std::string& etag,
                             const std::string& text = "v") {
        const auto fetched = fetch(key);
        answer(taken<GetCall>(), SourceObject{region(text), etag});
        return fetched->outcome->value->version();
    };
    const std::uint64_t one = version("k", "one");
    EXPECT_NE(one, 0u);
    EXPECT_EQ(version("l", "one"), one);
    EXPECT_NE(version("m", "two"), one);
    const std::uint64_t without = version("n", "");
    EXPECT_NE(without, 0u);
    EXPECT_EQ(version("o", ""), without) << "the bytes stand for a tag";
    EXPECT_NE(version("p", "", "w"), without);
}

TEST_F(RemoteTest, WhatIsWrittenIsThereOnceItIsStored) {
    const auto written = write("k", "new");
    const auto ticket = taken<PutCall>();
    EXPECT_EQ(remote_->find("k"), nullptr);
    EXPECT_EQ(*written, std::nullopt);
    answer(ticket, Stored{true, "etag"});
    EXPECT_EQ(*written, true);
    EXPECT_EQ(text_of(remote_->find("k")), "new");
    EXPECT_NE(remote_->find("k")->version(), 0u);
}

// A get that was on its way before a write is acknowledged may bring the old value: not to those
// who ask later, and not to the cache.
TEST_F(RemoteTest, AnOldValueDoesNotComeBackAfterAWrite) {
    const auto before = fetch("k");
    const auto get_before = taken<GetCall>();
    const auto written = write("k", "new");
    const auto put = taken<PutCall>();
    const auto during = fetch("k");
    const auto get_during = taken<GetCall>();
    answer(put, Stored{true, "n"});
    EXPECT_EQ(text_of(remote_->find("k")), "new");
    answer(get_before, SourceObject{region("old"), "o"});
    answer(get_during, SourceObject{region("old"), "o"});
    EXPECT_EQ(before->text(), "old");
    EXPECT_EQ(during->text(), "old");
    EXPECT_EQ(text_of(remote_->find("k")), "new");
}

TEST_F(RemoteTest, NobodyJoinsAGetFromBeforeAWrite) {
    const auto written = write("k", std::string(2 << 20, 'x'));  // more than the cache holds
    const auto put = taken<PutCall>();
    const auto during = fetch("k");
    const auto get_during = taken<GetCall>();
    answer(put, Stored{true, "n"});
    ASSERT_EQ(remote_->find("k"), nullptr);
    const auto after = fetch("k");
    const auto get_after = taken<GetCall>();
    answer(get_during, SourceObject{region("old"), "o"});
    EXPECT_EQ(during->text(), "old");
    EXPECT_EQ(after->text(), "not yet");
    EXPECT_EQ(remote_->find("k"), nullptr);
    answer(get_after, SourceObject{region("new"), "n"});
    EXPECT_EQ(after->text(), "new");
    EXPECT_EQ(text_of(remote_->find("k")), "new");
}

// For a second tier, which has no rule of its own.
TEST_F(RemoteTest, WhoTellsAValueIsToldWhetherItMayBeKept) {
    fetch("k");
    EXPECT_TRUE(may_be_kept(taken<GetCall>(), SourceObject{region("v"), "e"}));
    write("k", "new");
    EXPECT_TRUE(may_be_kept(taken<PutCall>(), Stored{true, "n"}));
    fetch("l");
    EXPECT_FALSE(may_be_kept(taken<GetCall>(), Missing{}));
    fetch("l");
    EXPECT_FALSE(may_be_kept(taken<GetCall>(), Failure{"denied"}));
    write("l", "new");
    EXPECT_FALSE(may_be_kept(taken<PutCall>(), Stored{false, ""}));
    write("l", "new");
    EXPECT_FALSE(may_be_kept(taken<PutCall>(), Stored{true, "n", false}));
    EXPECT_EQ(remote_->find("l"), nullptr) << "somebody else has written it, too";
}

TEST_F(RemoteTest, WhatOverlapsAChangeMayNotBeKept) {
    fetch("k");
    const auto get_before = taken<GetCall>();
    write("k", "new");
    const auto put = taken<PutCall>();
    fetch("k");
    const auto get_during = taken<GetCall>();
    EXPECT_FALSE(may_be_kept(get_before, SourceObject{region("old"), "o"}));
    EXPECT_TRUE(may_be_kept(put, Stored{true, "1"}));
    EXPECT_FALSE(may_be_kept(get_during, SourceObject{region("old"), "o"}));
    EXPECT_EQ(text_of(remote_->find("k")), "new");
}

TEST_F(RemoteTest, WhatOverlapsTheRemovalOfItsPrefixMayNotBeKept) {
    fetch("a/k");
    const auto get_before = taken<GetCall>();
    remote_->call(RemovePrefixCall{"a/"}, [](auto) {});
    const auto remove = taken<RemovePrefixCall>();
    fetch("a/m");
    const auto get_during = taken<GetCall>();
    answer(remove, Removed{1});
    EXPECT_FALSE(may_be_kept(get_before, SourceObject{region("old"), "o"}));
    EXPECT_FALSE(may_be_kept(get_during, SourceObject{region("old"), "o"}));
}

TEST_F(RemoteTest, AfterAWriteThatFailedTheValueIsAskedFor) {
    fetch("k");
    answer(taken<GetCall>(), SourceObject{region("old"), "o"});
    const auto written = write("k", "new");
    const auto put = taken<PutCall>();
    EXPECT_EQ(remote_->find("k"), nullptr);
    answer(put, Failure{"timed out"});
    EXPECT_EQ(*written, false);
    EXPECT_EQ(remote_->find("k"), nullptr);
}

TEST_F(RemoteTest, AWriteThatWasNotToReplaceChangesNothing) {
    fetch("k");
    answer(taken<GetCall>(), SourceObject{region("old"), "o"});
    const auto written = write("k", "new");
    answer(taken<PutCall>(), Stored{false, ""});
    EXPECT_EQ(*written, false);
    EXPECT_EQ(remote_->find("k"), nullptr);
    fetch("k");
    EXPECT_TRUE(may_be_kept(taken<GetCall>(), SourceObject{region("old"), "o"}));
}

TEST_F(RemoteTest, OfWhatWasTakenNobodyKnowsTheEndWhenAllIsClosed) {
    std::vector<bool> unknown;
    const auto note = [&](auto outcome) { unknown.push_back(outcome.unknown); };
    remote_->write("k", region("v"), false, note);
    taken<PutCall>();
    remote_->close("the end");
    EXPECT_EQ(unknown, std::vector<bool>{true});
    remote_->write("k", region("v"), false, note);
    EXPECT_EQ(unknown, (std::vector<bool>{true, false}));
}

TEST_F(RemoteTest, WhatIsRemovedIsGone) {
    for (const char* key : {"a/1", "a/2", "b"}) {
        fetch(key);
        answer(taken<GetCall>(), SourceObject{region("v"), "e"});
    }
    bool done = false;
    remote_->call(RemoveCall{{"b"}}, [&](auto) { done = true; });
    const auto removal = taken<RemoveCall>();
    const auto during = fetch("b");
    answer(taken<GetCall>(), SourceObject{region("v"), "e"});
    EXPECT_EQ(during->text(), "v") << "until then it is there";
    answer(removal, Missing{});
    EXPECT_TRUE(done);
    EXPECT_EQ(remote_->find("b"), nullptr);

    remote_->call(RemovePrefixCall{"a/"}, [](auto) {});
    const auto removals = taken<RemovePrefixCall>();
    const auto late = fetch("a/3");
    const auto get = taken<GetCall>();
    answer(removals, Removed{2});
    EXPECT_EQ(remote_->find("a/1"), nullptr);
    answer(get, SourceObject{region("old"), "o"});
    EXPECT_EQ(late->text(), "old");
    EXPECT_EQ(remote_->find("a/3"), nullptr);
}

TEST_F(RemoteTest, ClosingFailsWhatIsWaitingAndWhatIsAskedLater) {
    const auto first = fetch("k");
    remote_->close("the server is closed");
    EXPECT_EQ(first->text(), "failed: the server is closed");
    const auto second = fetch("k");
    EXPECT_EQ(second->text(), "failed: the server is closed");
    EXPECT_TRUE(nothing_asked());
}

// The same with a server in front.
class RemoteServer : public RemoteTest {
  protected:
    std::vector<std::pair<Calls::Ticket, Call>> wait_for_calls(std::size_t count) {
        std::vector<std::pair<Calls::Ticket, Call>> calls;
        EXPECT_TRUE(eventually([&] {
            for (auto& call : remote_->calls().take()) {
                calls.push_back(std::move(call));
            }
            return calls.size() >= count;
        }));
        EXPECT_EQ(calls.size(), count);
        return calls;
    }
    Calls::Ticket wait_for_call() { return wait_for_calls(1).at(0).first; }
    void cache(const std::string& key, const Bytes& value) {
        fetch(key);
        answer(taken<GetCall>(), SourceObject{region(value), "e"});
    }

    Loopback both_{remote_};
};

TEST_F(RemoteServer, SendsWhatComesLater) {
    const auto operation = get_operation({{"k"}, {"l"}});
    both_.submit(operation);
    const auto calls = wait_for_calls(2);
    const Bytes value = pattern(3 << 20);
    answer(calls[0].first, SourceObject{region(value), "e"});
    answer(calls[1].first, Missing{});
    finish(operation);
    EXPECT_TRUE(reply_of(*operation) == value);
    EXPECT_EQ(operation->items[1].status, Status::missing);
}

TEST_F(RemoteServer, WhatWaitsHoldsUpNothingElse) {
    cache("there", to_bytes("v"));
    const auto waiting = get_operation({{"k"}});
    both_.submit(waiting);
    const auto ticket = wait_for_call();
    EXPECT_EQ(both_.get("there"), to_bytes("v"));
    EXPECT_FALSE(waiting->done());
    EXPECT_TRUE(both_.server->busy());
    answer(ticket, SourceObject{region("late"), "e"});
    finish(waiting);
    EXPECT_EQ(reply_of(*waiting), to_bytes("late"));
    EXPECT_TRUE(eventually([&] { return !both_.server->busy(); }));
}

// More than one session may wait for, however many of them there are.
TEST_F(RemoteServer, AThousandGetsAreServedInTurn) {
    std::vector<Get> gets;
    for (int i = 0; i < 1000; ++i) {
        gets.push_back({std::to_string(i)});
    }
    const auto operation = get_operation(gets);
    both_.submit(operation);
    std::size_t most = 0;
    ASSERT_TRUE(eventually([&] {
        const auto calls = remote_->calls().take();
        most = std::max(most, calls.size());
        for (const auto& [ticket, call] : calls) {
            answer(ticket, SourceObject{region(std::get<GetCall>(call).key), ""});
        }
        return operation->done();
    }));
    finish(operation);
    for (std::size_t i = 0; i < gets.size(); ++i) {
        ASSERT_EQ(reply_of(*operation, i), to_bytes(std::to_string(i)));
    }
    EXPECT_LE(most, 128u);
}

TEST_F(RemoteServer, AFailureIsToldWithItsText) {
    const auto operation = get_operation({{"k"}});
    both_.submit(operation);
    answer(wait_for_call(), Failure{"permission denied"});
    ASSERT_TRUE(operation->wait_for(kPatience));
    try {
        operation->check();
        FAIL() << "it has not failed";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::storage);
        EXPECT_NE(std::string(error.what()).find("'k'"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("permission denied"), std::string::npos);
    }
}

TEST_F(RemoteServer, AnotherVersionIsNotSent) {
    const auto operation = get_operation({{.key = "k", .version = 5}});
    both_.submit(operation);
    answer(wait_for_call(), SourceObject{region("v"), "e"});
    finish(operation);
    EXPECT_EQ(operation->items[0].status, Status::changed);
}

TEST_F(RemoteServer, WhatIsGivenUpIsForgotten) {
    const auto operation = get_operation({{"k"}});
    both_.submit(operation);
    const auto ticket = wait_for_call();
    both_.client->cancel(both_.connection, operation);
    ASSERT_TRUE(operation->wait_for(kPatience));
    EXPECT_TRUE(eventually([&] { return !both_.server->busy(); }));
    answer(ticket, SourceObject{region("v"), "e"});
    EXPECT_EQ(both_.get("k"), to_bytes("v")) << "but kept for others";
}

TEST_F(RemoteServer, AClientThatHasGoneIsForgotten) {
    const auto operation = get_operation({{"k"}});
    both_.submit(operation);
    Bytes bytes = to_bytes("w");
    const auto set = set_operation({{"w", memory_of(bytes)}});
    both_.submit(set);
    const auto calls = wait_for_calls(2);
    both_.client->close(both_.connection);
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 0; }));
    for (const auto& [ticket, call] : calls) {
        answer(ticket, std::holds_alternative<GetCall>(call)
                           ? CallResult(SourceObject{region("v"), "e"})
                           : CallResult(Stored{true, "e"}));
    }
    both_.connection = both_.connect();
    EXPECT_EQ(both_.get("k"), to_bytes("v"));
    EXPECT_EQ(both_.get("w"), to_bytes("w"));
}

TEST_F(RemoteServer, AnswersMayComeAfterTheServerHasGone) {
    const auto operation = get_operation({{"k"}});
    both_.submit(operation);
    const auto ticket = wait_for_call();
    both_.server.reset();
    answer(ticket, SourceObject{region("v"), "e"});
    ASSERT_TRUE(operation->wait_for(kPatience));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::server_lost);
}

TEST_F(RemoteServer, ASetIsAcknowledgedOnceItIsStored) {
    Bytes bytes = pattern(1 << 20);
    const auto operation = set_operation({{"k", memory_of(bytes)}});
    both_.submit(operation);
    const auto calls = wait_for_calls(1);
    const auto& put = std::get<PutCall>(calls[0].second);
    EXPECT_EQ(put.key, "k");
    EXPECT_EQ(put.value->size(), bytes.size());
    EXPECT_EQ(std::memcmp(put.value->data(), bytes.data(), bytes.size()), 0);
    EXPECT_FALSE(operation->done());
    answer(calls[0].first, Stored{true, "e"});
    finish(operation);
    EXPECT_EQ(both_.counters.sets, 1u);
}

TEST_F(RemoteServer, OtherRequestsAreAnswered) {
    const auto stat = call_operation(Op::stat, strings({"a", "b"}), 2);
    both_.submit(stat);
    answer(wait_for_call(), Sizes{7, kAnySize});
    finish(stat);
    const Bytes sizes = reply_of(*stat);
    Reader reader(sizes);
    EXPECT_EQ(reader.u64(), 7u);
    EXPECT_EQ(reader.u64(), kAnySize);

    const auto list =
        call_operation(Op::list, strings({"a/"}) + std::string(1, '\1') + strings({""}));
    both_.submit(list);
    const auto calls = wait_for_calls(1);
    EXPECT_EQ(std::get<ListCall>(calls[0].second).prefix, "a/");
    answer(calls[0].first, Page{{"x", "y"}, "z", {}, {"a/locked"}});
    finish(list);
    const Bytes page = reply_of(*list);
    Reader names(page);
    EXPECT_EQ(names.string(), "z");
    EXPECT_EQ(names.u64(), 1u);
    EXPECT_EQ(names.string(), "a/locked");
    EXPECT_EQ(names.string(), "x");
    EXPECT_EQ(names.string(), "y");

    const auto remove = call_operation(Op::remove, strings({"a"}));
    both_.submit(remove);
    answer(wait_for_call(), Failure{"denied"});
    ASSERT_TRUE(remove->wait_for(kPatience));
    EXPECT_EQ(error_of([&] { remove->check(); }), ErrorKind::storage);
}

}  // namespace
}  // namespace ucxstore::test

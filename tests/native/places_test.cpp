// The limit of sessions, and who ends for newcomers.
#include "sessions/places.hpp"

#include <cstring>

#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

std::vector<Places::Place> take(Places& places, const std::string& origin, int count) {
    std::vector<Places::Place> taken;
    for (int i = 0; i < count; ++i) {
        taken.push_back(places.take(origin));
    }
    return taken;
}

TEST(PlacesTest, AnEighthIsKeptForOriginsWithFew) {
    const auto places = std::make_shared<Places>(16);
    auto many = take(*places, "many", 13);
    EXPECT_TRUE(places->has_room("many"));
    many.push_back(places->take("many"));
    EXPECT_FALSE(places->has_room("many"));
    EXPECT_NE(places->refusal("many").find("14 of the 16"), std::string::npos);
    EXPECT_NE(places->refusal("many").find("kept for others"), std::string::npos);
    auto few = take(*places, "few", 1);
    EXPECT_TRUE(places->has_room("few"));
    few.push_back(places->take("few"));
    EXPECT_FALSE(places->has_room("few"));
    EXPECT_FALSE(places->has_room("another"));
    many.pop_back();
    EXPECT_FALSE(places->has_room("few")) << "it has its eighth";
    EXPECT_TRUE(places->has_room("another"));
}

TEST(PlacesTest, ThoseWithMoreYieldAndThenOnesOwn) {
    const auto places = std::make_shared<Places>(6);
    const auto three = take(*places, "three", 3);
    const auto two = take(*places, "two", 2);
    const auto one = take(*places, "one", 1);
    using Origins = std::vector<std::string>;
    EXPECT_EQ(places->that_may_yield("new"), (Origins{"three", "two", "one"}));
    EXPECT_EQ(places->that_may_yield("one"), (Origins{"three", "two", "one"}));
    EXPECT_EQ(places->that_may_yield("two"), (Origins{"three", "two"}));
    EXPECT_EQ(places->that_may_yield("three"), (Origins{"three"}));
}

TEST(PlacesTest, SmallLimitsKeepNothing) {
    const auto places = std::make_shared<Places>(1);
    EXPECT_TRUE(places->has_room("a"));
    auto taken = take(*places, "a", 1);
    EXPECT_FALSE(places->has_room("b"));
    taken.clear();
    EXPECT_TRUE(places->has_room("b"));
}

TEST(PlacesTest, WithoutALimitThereIsAlwaysRoom) {
    const auto places = std::make_shared<Places>();
    const auto taken = take(*places, "a", 100);
    EXPECT_TRUE(places->has_room("a"));
}

// A server of memory, with clients of its host.
class Newcomers : public testing::Test {
  protected:
    using Link = std::shared_ptr<LocalLink>;

    Newcomers() {
        storage_ = std::make_shared<MemoryStorage>(std::make_shared<Quota>(1ull << 40), false,
                                                   shared::Shelf::make());
        server_ = std::make_unique<Server>(Storages(std::shared_ptr<Storage>(storage_)), 2,
                                           Server::Ucx{{}, false, true}, false, 4);
    }
    ~Newcomers() override {
        client_.close();
        server_->close(1s);
    }
    Link connect(const std::string& origin, int thread = 0) {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server_->local_thread(thread)->attach(std::move(pair.one), token, {"client", {}, origin});
        return client_.attach(std::move(pair.other), token, "server");
    }
    // Whether room is made before long.
    bool makes_room(const std::string& origin) {
        try {
            return eventually([&] { return server_->make_room(origin, 1); });
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::resource);
            EXPECT_NE(std::string(error.what()).find("max_sessions"), std::string::npos);
            return false;
        }
    }
    static void run(const Link& link, const std::shared_ptr<Operation>& operation) {
        link->submit(operation);
        finish(operation);
    }
    static void set(const Link& link, const std::string& key, Bytes value) {
        run(link, set_operation({{key, memory_of(value)}}));
    }

    std::shared_ptr<MemoryStorage> storage_;
    std::unique_ptr<Server> server_;
    LocalClient client_;
};

TEST_F(Newcomers, TheMostSilentOfAllThreadsGoes) {
    const Link a = connect("many", 0);
    const Link b = connect("many", 1);
    const Link c = connect("many", 0);
    const Link d = connect("one", 1);
    set(a, "k", pattern(10));
    EXPECT_TRUE(makes_room("new"));
    EXPECT_TRUE(b->leaving() || b->failed());
    EXPECT_FALSE(a->failed() || c->failed() || d->failed());
    EXPECT_EQ(server_->counters().sessions_ended, 1u);
    EXPECT_EQ(server_->counters().sessions_lost, 0u);
    const Link e = connect("new");
    EXPECT_TRUE(makes_room("new"));
    EXPECT_TRUE(c->leaving() || c->failed());
}

TEST_F(Newcomers, AsManyAreAskedAsWait) {
    const std::vector<Link> many{connect("many", 0), connect("many", 1), connect("many", 0),
                                 connect("many", 1)};
    EXPECT_FALSE(server_->make_room("a", 2));
    EXPECT_FALSE(server_->make_room("b", 2));
    EXPECT_TRUE(eventually([&] { return server_->sessions() == 2; }));
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(server_->sessions(), 2u);
}

TEST_F(Newcomers, OneThatDoesNotHangUpIsEnded) {
    std::vector<Fd> silent;
    for (int i = 0; i < 4; ++i) {
        ControlPair pair = control_pair();
        server_->local_thread(0)->attach(std::move(pair.one), new_token(), {"client", {}, "many"});
        silent.push_back(std::move(pair.other));
    }
    const TimePoint begun = Clock::now();
    EXPECT_TRUE(makes_room("new"));
    EXPECT_GE(Clock::now() - begun, 900ms);
    EXPECT_EQ(server_->sessions(), 3u);
    EXPECT_EQ(server_->counters().sessions_ended, 1u);
}

TEST_F(Newcomers, WhoHoldsAValueStays) {
    std::vector<Link> many;
    std::vector<std::shared_ptr<Region>> held;
    for (int i = 0; i < 4; ++i) {
        many.push_back(connect("many"));
        set(many.back(), "k", pattern(1 << 20));
        run(many.back(), get_operation({{"k"}}));
        held.push_back(many.back()->hold("k"));
        ASSERT_NE(held.back(), nullptr);
    }
    EXPECT_FALSE(makes_room("new"));
    EXPECT_EQ(server_->counters().sessions_ended, 0u);
    held.erase(held.begin() + 2);
    // Acceptors ask again, too: the session may have something under way just now.
    EXPECT_TRUE(eventually([&] { return makes_room("new"); }));
    EXPECT_TRUE(many[2]->leaving() || many[2]->failed());
    EXPECT_FALSE(many[0]->failed() || many[1]->failed() || many[3]->failed());
}

TEST_F(Newcomers, WhatAClientThatIsGoneStillHoldsKeepsItsPlace) {
    std::vector<Link> many;
    for (int i = 0; i < 4; ++i) {
        many.push_back(connect("many"));
    }
    const Bytes value = pattern(1 << 20);
    set(many[0], "k", value);
    run(many[0], get_operation({{"k"}}));
    auto held = many[0]->hold("k");
    ASSERT_NE(held, nullptr);
    many[0]->close();
    many[0].reset();
    ASSERT_TRUE(eventually([&] { return server_->sessions() == 3; }));
    for (int i = 1; i < 4; ++i) {
        run(many[static_cast<std::size_t>(i)], get_operation({{"k"}}));
    }
    std::vector<std::shared_ptr<Region>> others;
    for (int i = 1; i < 4; ++i) {
        others.push_back(many[static_cast<std::size_t>(i)]->hold("k"));
    }
    EXPECT_FALSE(makes_room("new"));
    set(many[1], "k", pattern(10));
    EXPECT_EQ(std::memcmp(held->data(), value.data(), value.size()), 0);
    held.reset();
    EXPECT_TRUE(eventually([&] { return makes_room("new"); }));  // after the look at pins
    EXPECT_EQ(server_->counters().sessions_ended, 0u);
}

TEST_F(Newcomers, WhereDescriptorsAreShortOnlyOthersEnd) {
    const std::vector<Link> many{connect("many"), connect("many")};
    EXPECT_FALSE(server_->make_room("new", 1, true));
    EXPECT_TRUE(eventually([&] { return server_->sessions() == 1; }));
    EXPECT_FALSE(server_->make_room("new", 1, true));
    EXPECT_TRUE(eventually([&] { return server_->sessions() == 0; }));
    EXPECT_EQ(error_of([&] { server_->make_room("new", 1, true); }), ErrorKind::resource);
    const Link own = connect("new");
    EXPECT_EQ(error_of([&] { server_->make_room("new", 1, true); }), ErrorKind::resource);
    EXPECT_TRUE(server_->make_room("new", 1));
}

TEST_F(Newcomers, NoneEndsForOneOfAnOriginWithAsMany) {
    const Link a = connect("a");
    const Link b = connect("b");
    const Link c = connect("c");
    const Link d = connect("d");
    set(a, "k", pattern(1 << 20));
    run(a, get_operation({{"k"}}));
    const auto held = a->hold("k");
    EXPECT_FALSE(makes_room("a"));
    EXPECT_FALSE(b->failed() || c->failed() || d->failed());
    EXPECT_TRUE(makes_room("new"));
}

// It hears of it with the answer to its first message, and has until then begun the next.
TEST(NewcomersOverUcx, OneThatIsJustConnectingIsAskedOnceItHasConnected) {
    Loopback both;
    Puppet puppet;
    ControlPair pair = control_pair();
    auto worker = both.server->open(-1, SharedMemory::on);
    const std::string address = worker->address();
    const Token token = new_token();
    both.server->attach(std::move(worker), std::move(pair.one), token, puppet.address(),
                        {"puppet", {}, "many"});
    ASSERT_TRUE(both.server->ask_most_silent("many"));
    std::this_thread::sleep_for(10ms);
    const TimePoint before = Clock::now();
    puppet.connect(address);
    puppet.send(Message::request, raw(RequestHeader{token, 1, Op::ping, 0, 1, 0}));
    ASSERT_TRUE(puppet.until([&] { return puppet.received().size() == 2; }))
        << "told, and answered";
    EXPECT_EQ(both.server->end_asked(before), 1u);
    EXPECT_EQ(both.server->sessions(), 2u);
    EXPECT_EQ(both.server->end_asked(Clock::now()), 0u);
    EXPECT_TRUE(eventually([&] { return both.server->sessions() == 1; }));
}

}  // namespace
}  // namespace ucxstore::test

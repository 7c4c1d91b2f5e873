// Requests that wait for a source: what their client is told meanwhile, and what it may hold.
#include "remote_fixture.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBudget = 1 << 20;

// A client that is driven by hand, beside a good one. The test answers for the source.
class Waiting : public testing::Test {
  protected:
    Waiting() {
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), token_, puppet_.address(),
                             "puppet");
        control_ = std::move(pair.other);
        puppet_.connect(address);
        request(Op::ping, kPing);
        EXPECT_TRUE(puppet_.until([&] { return count(kPing, Status::ok) == 1; }));
    }
    ~Waiting() override { control_.reset(); }

    void request(Op op, std::uint64_t number, const std::string& body = {}) {
        puppet_.send(Message::request, raw(RequestHeader{token_, number, op, 0, 1, 0}), body);
    }
    void begin_value(std::uint64_t number, std::uint64_t total, std::uint64_t length) {
        const std::uint64_t segment = std::max(length, kMinSegmentBytes);
        const ValueHeader header{token_, number, 0, 0, total, segment, 0, length};
        puppet_.send(Message::value, raw(header) + "k", std::string(length, 'x'),
                     length > kEagerBytes ? Puppet::Way::rendezvous : Puppet::Way::eager);
    }
    void send_segment(Puppet& from, const Token& token, std::uint64_t total, std::uint64_t index) {
        const ValueHeader header{token, 1, 0, 0, total, kSegment, index * kSegment, kSegment};
        from.send(Message::value, raw(header) + "k", std::string(kSegment, 'x'),
                  Puppet::Way::rendezvous);
    }
    // How often the puppet was told this of a request.
    std::size_t count(std::uint64_t number, Status status) {
        return static_cast<std::size_t>(
            std::ranges::count_if(puppet_.received(), [&](const Puppet::Received& one) {
                const auto reply = read_header<ReplyHeader>(one.header.data(), one.header.size());
                return reply->request == number && reply->status == status;
            }));
    }
    std::vector<Calls::Ticket> tickets(std::size_t wanted) {
        std::vector<Calls::Ticket> found;
        EXPECT_TRUE(puppet_.until([&] {
            for (const auto& [ticket, call] : remote_->calls().take()) {
                found.push_back(ticket);
            }
            return found.size() >= wanted;
        }));
        return found;
    }

    static constexpr std::uint64_t kSegment = 16 << 10;
    static constexpr std::uint64_t kPing = 1'000'000;
    const std::shared_ptr<CachedSource> remote_ =
        std::make_shared<CachedSource>(64 << 20, kBlock, CachedSource::kForEver, kBudget);
    Loopback both_{remote_};
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
};

TEST_F(Waiting, IsToldOfForAsLongAsTheSourceMoves) {
    request(Op::stat, 1, strings({"a"}));
    request(Op::stat, 2, strings({"b"}));
    const auto asked = tickets(2);
    EXPECT_FALSE(puppet_.until([&] { return count(1, Status::going_on) > 0; }, 1s))
        << "nothing moves";
    remote_->calls().answer(asked[1], Sizes{1});
    ASSERT_TRUE(puppet_.until([&] { return count(1, Status::going_on) > 0; }));
    EXPECT_EQ(count(2, Status::ok), 1u);
    EXPECT_EQ(count(2, Status::going_on), 0u);
    const std::size_t told = count(1, Status::going_on);
    EXPECT_FALSE(puppet_.until([&] { return count(1, Status::going_on) > told; }, 1s));
    remote_->calls().answer(asked[0], Sizes{1});
    EXPECT_TRUE(puppet_.until([&] { return count(1, Status::ok) == 1; }));
}

// Gets that were abandoned are still with the source: others wait until they are not.
TEST_F(Waiting, AbandonedGetsAreNotReplacedWithoutEnd) {
    constexpr std::uint64_t kMost = Sending::kMaxMessages;
    const auto get = [&](std::uint64_t number) {
        std::string body;
        put_get_item(body, {"k" + std::to_string(number), {}});
        request(Op::get, number, body);
    };
    for (std::uint64_t number = 1; number <= kMost; ++number) {
        get(number);
    }
    const auto asked = tickets(kMost);
    EXPECT_EQ(asked.size(), kMost);
    for (std::uint64_t number = 1; number <= kMost; ++number) {
        request(Op::abandon, number);
        get(kMost + number);
    }
    request(Op::ping, kPing + 1);
    ASSERT_TRUE(puppet_.until([&] { return count(kPing + 1, Status::ok) == 1; }));
    EXPECT_TRUE(remote_->calls().take().empty());
    EXPECT_EQ(both_.counters.abandoned, kMost);
    for (const Calls::Ticket ticket : asked) {
        remote_->calls().answer(ticket, Missing{});
    }
    for (const Calls::Ticket ticket : tickets(kMost)) {
        remote_->calls().answer(ticket, Missing{});
    }
    EXPECT_TRUE(puppet_.until([&] { return count(2 * kMost, Status::missing) == 1; }));
    EXPECT_EQ(count(kMost, Status::missing), 0u);
}

// The good client's time-out does not strike what moves, and strikes what does not.
TEST_F(Waiting, AClientWaitsForWhatMoves) {
    const auto operation = call_operation(Op::stat, strings({"a"}), 1, 1.5);
    both_.submit(operation);
    tickets(1);
    for (std::uint64_t number = 1; number <= 8; ++number) {
        request(Op::stat, number, strings({"b"}));
        const auto asked = tickets(1);
        EXPECT_FALSE(puppet_.until([&] { return operation->done(); }, 500ms)) << number;
        remote_->calls().answer(asked[0], Sizes{1});
    }
    EXPECT_TRUE(operation->wait_for(kPatience));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::timeout);
}

TEST_F(Waiting, SmallValuesThatNobodyTakesAreBounded) {
    const std::uint64_t kMost =
        kLimits[static_cast<std::size_t>(Held::small_values)].of_session / (1000 + kValueBytes);
    EXPECT_GT(kMost, 4 * kMaxUnanswered);
    for (std::uint64_t number = 1; number <= kMost + 100; ++number) {
        begin_value(number, 1000, 1000);
    }
    EXPECT_TRUE(puppet_.until([&] { return count(kMost + 100, Status::busy) == 1; }));
    EXPECT_EQ(remote_->writes().taken(), kMost * 1000);
    for (const Calls::Ticket ticket : tickets(kMost)) {
        remote_->calls().answer(ticket, Stored{true, "e"});
    }
    EXPECT_TRUE(puppet_.until([&] { return count(kMost, Status::ok) == 1; }));
    both_.client->close(both_.connection);
}

// The room is not for one that only announces values.
TEST_F(Waiting, WhoHasRoomAndSendsNothingLosesItToOthers) {
    begin_value(1, 2 * kBudget, 100'000);
    ASSERT_TRUE(eventually([&] { return remote_->writes().taken() > 0; }));
    Bytes share = pattern(kBudget / 4);
    const auto small = set_operation({{"small", memory_of(share)}});
    both_.submit(small);
    remote_->calls().answer(tickets(1)[0], Stored{true, "e"});
    finish(small);
    Bytes bytes = pattern(kBudget);
    const auto large = set_operation({{"large", memory_of(bytes)}});
    both_.submit(large);
    remote_->calls().answer(tickets(1)[0], Stored{true, "e"});
    finish(large);
    EXPECT_EQ(both_.get("large"), bytes);
    // A second one of the same client has to wait for the room.
    const auto others = set_operation({{"a", memory_of(bytes)}, {"b", memory_of(bytes)}});
    both_.submit(others);
    remote_->calls().answer(tickets(1)[0], Stored{true, "e"});
    remote_->calls().answer(tickets(1)[0], Stored{true, "e"});
    finish(others);
}

// So it is ended only where others wait.
TEST_F(Waiting, OnlyOneThatStandsInTheWayIsEnded) {
    begin_value(1, 2 * kBudget, 100'000);
    ASSERT_TRUE(eventually([&] { return remote_->writes().taken() > 0; }));
    EXPECT_FALSE(puppet_.until([&] { return both_.server->sessions() == 1; }, 20s));
    std::vector<WriteBudget::Room> rooms;
    for (const char* const owner : {"a", "b", "c", "d"}) {
        rooms.push_back(remote_->writes().take(kBudget / 4, [](const auto&) {}, owner));
    }
    EXPECT_EQ(rooms.back(), nullptr) << "somebody waits";
    EXPECT_TRUE(puppet_.until([&] { return both_.server->sessions() == 1; }, 30s));
}

// A little now and then is not enough.
TEST_F(Waiting, OneThatSendsTooLittleIsEndedWhereOthersWait) {
    send_segment(puppet_, token_, 2 * kBudget, 0);
    ASSERT_TRUE(eventually([&] { return remote_->writes().taken() > 0; }));
    std::vector<WriteBudget::Room> rooms;
    for (const char* const owner : {"a", "b", "c", "d"}) {
        rooms.push_back(remote_->writes().take(kBudget / 4, [](const auto&) {}, owner));
    }
    bool ended = false;
    for (std::uint64_t index = 1; index <= 15 && !ended; ++index) {
        send_segment(puppet_, token_, 2 * kBudget, index);
        ended = puppet_.until([&] { return both_.server->sessions() == 1; }, 2s);
    }
    EXPECT_TRUE(ended);
}

// However many sessions one has, it has one share.
TEST_F(Waiting, TheSessionsOfAnOriginShareItsRoom) {
    struct Greedy {
        Puppet puppet;
        Token token = new_token();
        Fd control;
    };
    std::vector<std::unique_ptr<Greedy>> all;
    for (int i = 0; i < 4; ++i) {
        all.push_back(std::make_unique<Greedy>());
        Greedy& one = *all.back();
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), one.token,
                             one.puppet.address(), {"greedy", {}, "greedy"});
        one.control = std::move(pair.other);
        one.puppet.connect(address);
        one.puppet.send(Message::request, raw(RequestHeader{one.token, kPing, Op::ping, 0, 1, 0}));
        ASSERT_TRUE(one.puppet.until([&] { return !one.puppet.received().empty(); }));
        send_segment(one.puppet, one.token, kBudget / 4, 0);
        const std::uint64_t expected = (static_cast<std::uint64_t>(i) + 1) * (kBudget / 4);
        ASSERT_TRUE(one.puppet.until([&] { return remote_->writes().taken() >= expected; }));
    }
    Bytes value = pattern(kBudget / 4);
    const auto honest = set_operation({{"honest", memory_of(value)}});
    both_.submit(honest);
    std::vector<Calls::Ticket> found;
    EXPECT_TRUE(eventually(
        [&] {
            for (const auto& [ticket, call] : remote_->calls().take()) {
                found.push_back(ticket);
            }
            return !found.empty();
        },
        5s));
    for (const Calls::Ticket ticket : found) {
        remote_->calls().answer(ticket, Stored{true, "e"});
    }
    both_.client->close(both_.connection);
    for (const auto& one : all) {
        one->control.reset();
    }
}

// What a source has brought for a client that takes nothing goes again.
TEST_F(Waiting, ValuesThatNobodyTakesAreNotKept) {
    constexpr std::uint64_t kSize = 8 << 20;
    constexpr std::uint64_t kMost = Sending::kMaxMessages;
    for (std::uint64_t number = 1; number <= kMost; ++number) {
        std::string body;
        put_get_item(body, {"k" + std::to_string(number), {}});
        request(Op::get, number, body);
    }
    std::vector<std::weak_ptr<Region>> values;
    for (const Calls::Ticket ticket : tickets(kMost)) {
        auto value = allocate_region(kSize);
        values.push_back(value);
        remote_->calls().answer(ticket, SourceObject{std::move(value), "e"});
    }
    const auto alive = [&] {
        return static_cast<std::uint64_t>(
            std::ranges::count_if(values, [](const auto& one) { return !one.expired(); }));
    };
    // Those in the cache, those that wait, and those in flight.
    EXPECT_TRUE(puppet_.until(
        [&] { return alive() * kSize <= (64ull << 20) + (256ull << 20) + Sending::kMaxBytes; }, 5s))
        << alive();
}

// Also beside memory, who waits in a queue that moves is told so.
TEST(WaitingForMemory, IsToldOfForAsLongAsOthersMove) {
    constexpr std::uint64_t kRoom = 8 << 20;
    const auto storage = std::make_shared<MemoryStorage>(Quota::of_memory(kRoom));
    Loopback both{Options{}, false, storage};
    WriteBudget& writes = storage->memory_limit()->writes();
    std::vector<WriteBudget::Room> rooms;
    for (const char* const owner : {"a", "b", "c", "d"}) {
        rooms.push_back(writes.take_now(kRoom / 4, owner));
    }
    Bytes value = pattern(2 << 20);
    const auto waits = set_operation({{"k", memory_of(value)}}, false, 1.5);
    both.submit(waits);
    for (int i = 0; i < 8; ++i) {
        EXPECT_FALSE(waits->wait_for(500ms)) << i;
        writes.take_now(1, "e").reset();
    }
    rooms.clear();
    EXPECT_TRUE(waits->wait_for(kPatience));
    EXPECT_NO_THROW(finish(waits));
}

// And a value that is refused has no room any more, though its bytes are still to come.
TEST(WaitingForMemory, WhatIsRefusedKeepsNoRoom) {
    constexpr std::uint64_t kRoom = 8 << 20;
    const auto storage = std::make_shared<MemoryStorage>(Quota::of_memory(kRoom));
    Loopback both{Options{}, false, storage};
    const Token token = new_token();
    Puppet puppet;
    ControlPair pair = control_pair();
    auto worker = both.server->open(-1, SharedMemory::on);
    const std::string address = worker->address();
    both.server->attach(std::move(worker), std::move(pair.one), token, puppet.address(), "puppet");
    puppet.connect(address);
    puppet.send(Message::request, raw(RequestHeader{token, 1, Op::ping, 0, 1, 0}));
    ASSERT_TRUE(puppet.until([&] { return puppet.received().size() == 1; }));
    const ValueHeader header{token, 2, 0, 0, 2 * kRoom, 4096, 0, 4096};
    puppet.send(Message::value, raw(header) + "k", std::string(4096, 'x'));
    ASSERT_TRUE(puppet.until([&] { return puppet.received().size() == 2; })) << "it is refused";
    EXPECT_EQ(storage->memory_limit()->writes().taken(), 0u);
    pair.other.reset();
}

}  // namespace
}  // namespace ucxstore::test

// Requests that wait for a source: what their client is told meanwhile, and what it may hold.
#include "remote_fixture.hpp"

namespace ucxstore {
namespace {

using namespace test;
using namespace std::chrono_literals;
using wire::Message;

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
        request(wire::Op::ping, kPing);
        EXPECT_TRUE(puppet_.until([&] { return count(kPing, wire::Status::ok) == 1; }));
    }
    ~Waiting() override { control_.reset(); }

    void request(wire::Op op, std::uint64_t number, const std::string& body = {}) {
        puppet_.send(Message::request, raw(wire::RequestHeader{token_, number, op, 0, 1, 0}), body);
    }
    void begin_value(std::uint64_t number, std::uint64_t total, std::uint64_t length) {
        const std::uint64_t segment = std::max(length, wire::kMinSegmentBytes);
        const wire::ValueHeader header{token_, number, 0, 0, total, segment, 0, length};
        puppet_.send(Message::value, raw(header) + "k", std::string(length, 'x'),
                     length > wire::kEagerBytes ? Puppet::Way::rendezvous : Puppet::Way::eager);
    }
    // How often the puppet was told this of a request.
    std::size_t count(std::uint64_t number, wire::Status status) {
        return static_cast<std::size_t>(
            std::ranges::count_if(puppet_.received(), [&](const Puppet::Received& one) {
                const auto reply =
                    wire::read_header<wire::ReplyHeader>(one.header.data(), one.header.size());
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

    static constexpr std::uint64_t kPing = 1'000'000;
    const std::shared_ptr<CachedSource> remote_ =
        std::make_shared<CachedSource>(64 << 20, kBlock, CachedSource::kForEver, kBudget);
    Loopback both_{remote_};
    const wire::Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
};

TEST_F(Waiting, IsToldOfForAsLongAsTheSourceMoves) {
    request(wire::Op::stat, 1, strings({"a"}));
    request(wire::Op::stat, 2, strings({"b"}));
    const auto asked = tickets(2);
    EXPECT_FALSE(puppet_.until([&] { return count(1, wire::Status::going_on) > 0; }, 1s))
        << "nothing moves";
    remote_->calls().answer(asked[1], Sizes{1});
    ASSERT_TRUE(puppet_.until([&] { return count(1, wire::Status::going_on) > 0; }));
    EXPECT_EQ(count(2, wire::Status::ok), 1u);
    EXPECT_EQ(count(2, wire::Status::going_on), 0u);
    const std::size_t told = count(1, wire::Status::going_on);
    EXPECT_FALSE(puppet_.until([&] { return count(1, wire::Status::going_on) > told; }, 1s));
    remote_->calls().answer(asked[0], Sizes{1});
    EXPECT_TRUE(puppet_.until([&] { return count(1, wire::Status::ok) == 1; }));
}

// Gets that were abandoned are still with the source: others wait until they are not.
TEST_F(Waiting, AbandonedGetsAreNotReplacedWithoutEnd) {
    constexpr std::uint64_t kMost = Sending::kMaxMessages;
    const auto get = [&](std::uint64_t number) {
        std::string body;
        wire::put_get_item(body, {"k" + std::to_string(number), {}});
        request(wire::Op::get, number, body);
    };
    for (std::uint64_t number = 1; number <= kMost; ++number) {
        get(number);
    }
    const auto asked = tickets(kMost);
    EXPECT_EQ(asked.size(), kMost);
    for (std::uint64_t number = 1; number <= kMost; ++number) {
        request(wire::Op::abandon, number);
        get(kMost + number);
    }
    request(wire::Op::ping, kPing + 1);
    ASSERT_TRUE(puppet_.until([&] { return count(kPing + 1, wire::Status::ok) == 1; }));
    EXPECT_TRUE(remote_->calls().take().empty());
    EXPECT_EQ(both_.counters.abandoned, kMost);
    for (const Calls::Ticket ticket : asked) {
        remote_->calls().answer(ticket, Missing{});
    }
    for (const Calls::Ticket ticket : tickets(kMost)) {
        remote_->calls().answer(ticket, Missing{});
    }
    EXPECT_TRUE(puppet_.until([&] { return count(2 * kMost, wire::Status::missing) == 1; }));
    EXPECT_EQ(count(kMost, wire::Status::missing), 0u);
}

// The good client's time-out does not strike what moves, and strikes what does not.
TEST_F(Waiting, AClientWaitsForWhatMoves) {
    const auto operation = call_operation(wire::Op::stat, strings({"a"}), 1, 1.5);
    both_.submit(operation);
    tickets(1);
    for (std::uint64_t number = 1; number <= 8; ++number) {
        request(wire::Op::stat, number, strings({"b"}));
        const auto asked = tickets(1);
        EXPECT_FALSE(puppet_.until([&] { return operation->done(); }, 500ms)) << number;
        remote_->calls().answer(asked[0], Sizes{1});
    }
    EXPECT_TRUE(operation->wait_for(kPatience));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::timeout);
}

TEST_F(Waiting, SmallValuesThatNobodyTakesAreBounded) {
    constexpr std::uint64_t kMost = 4 * wire::kMaxUnanswered;
    for (std::uint64_t number = 1; number <= kMost + 100; ++number) {
        begin_value(number, 1000, 1000);
    }
    EXPECT_TRUE(puppet_.until([&] { return count(kMost + 100, wire::Status::busy) == 1; }));
    EXPECT_EQ(remote_->writes().taken(), kMost * 1000);
    for (const Calls::Ticket ticket : tickets(kMost)) {
        remote_->calls().answer(ticket, Stored{true, "e"});
    }
    EXPECT_TRUE(puppet_.until([&] { return count(kMost, wire::Status::ok) == 1; }));
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
    const int owners[4] = {};
    for (const int& owner : owners) {
        rooms.push_back(remote_->writes().take(kBudget / 4, [](const auto&) {}, &owner));
    }
    EXPECT_EQ(rooms.back(), nullptr) << "somebody waits";
    EXPECT_TRUE(puppet_.until([&] { return both_.server->sessions() == 1; }, 30s));
}

}  // namespace
}  // namespace ucxstore

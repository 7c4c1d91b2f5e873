// A session whose client takes no replies, over a carrier that brings requests all the same.
#include "sessions/session.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "objects.hpp"
#include "storage/memory.hpp"

namespace ucxstore::test {
namespace {

class Standing : public Sending {
  public:
    using Sending::begin_other;
    using Sending::forget_in_flight;
    using Sending::other_sent;
    using Sending::Sending;

    bool failed() const override { return false; }
    bool catch_up() override { return true; }
    // The client takes so many.
    void take(std::size_t count) {
        for (; count > 0 && !amounts.empty(); --count) {
            const Amount amount = amounts.front();
            amounts.erase(amounts.begin());
            sent(amount, true);
        }
    }
    std::vector<Amount> amounts;
    std::vector<std::uint64_t> lengths;

  private:
    bool send(Message message) override {
        amounts.push_back(message.amount());
        lengths.push_back(message.header.length);
        return true;
    }
    void end() override {}
};

class NoReceiver : public Receiver {
  public:
    void receive(Parcel, std::unique_ptr<Sink>, std::uint64_t, Write) override {}
    void drop(Parcel) override {}
};

constexpr auto kLong = std::chrono::hours(1);

class SessionTest : public ::testing::Test {
  protected:
    // A client of the server, on its one thread.
    struct Client {
        explicit Client(SessionTest& test)
            : record(std::make_shared<ClientRecord>(
                  test.service.counters, test.service.places->take("a"), Admitted("peer", {}, "a"),
                  test.ledger->open("a"))),
              sending(std::make_shared<Standing>(test.token, record)),
              seat(test.turns, record->account(),
                   [this] {
                       session.work();
                       return false;
                   }),
              session(test.service, {}, test.token, record, sending, test.receiver, seat),
              limits(*test.ledger) {}

        // As if nobody else had anything to do; or else, within its turn.
        void ask(Op op, const std::string& body = {}, std::uint32_t count = 1,
                 Clock::duration turn = kLong) {
            seat.work_until(Clock::now() + turn);
            session.guard([&] {
                session.on_request({Token{}, ++last, op, 0, count, 0},
                                   std::as_bytes(std::span(body)));
            });
        }
        void take_all() {
            while (!sending->amounts.empty()) {
                sending->take(100);
                seat.work_until(Clock::now() + kLong);
                session.work();
            }
        }
        std::uint64_t held(Held what) const { return record->account()->held(what); }
        std::uint64_t most(Held what) const { return limits.limit(what).of_session; }
        std::size_t replies() const { return sending->lengths.size(); }

        const std::shared_ptr<ClientRecord> record;
        const std::shared_ptr<Standing> sending;
        Turns::Seat seat;
        Session session;
        const Ledger& limits;
        std::uint64_t last = 0;
    };

    const std::shared_ptr<MemoryStorage> storage = std::make_shared<MemoryStorage>();
    const std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
    const Service service{
        .storages = Storages(storage), .counters = std::make_shared<Counters>(), .ledger = ledger};
    const Token token{};
    NoReceiver receiver;
    Turns turns;
    Client client{*this};
};

TEST_F(SessionTest, RequestsWaitWhereNoReplyIsTaken) {
    for (int i = 0; i < 20'000; ++i) {
        client.ask(Op::ping);
    }
    EXPECT_FALSE(client.session.reads());
    EXPECT_GE(client.held(Held::reply_bytes), client.most(Held::reply_bytes));
    EXPECT_LE(client.held(Held::reply_bytes), client.most(Held::reply_bytes) + 4096);
    EXPECT_LT(client.sending->amounts.size(), 10'000u);
    EXPECT_GT(client.held(Held::request_bytes), 0u);
    EXPECT_FALSE(client.record->doomed());
    client.take_all();
    EXPECT_EQ(client.replies(), 20'000u);
    EXPECT_EQ(client.held(Held::request_bytes), 0u);
    EXPECT_EQ(client.held(Held::reply_bytes), 0u);
    EXPECT_TRUE(client.session.reads());
}

TEST_F(SessionTest, ASessionThatSendsOnForEverEnds) {
    for (int i = 0; i < 10'000'000 && !client.record->doomed(); ++i) {
        client.ask(Op::ping);
    }
    EXPECT_TRUE(client.record->doomed());
    EXPECT_LE(client.held(Held::request_bytes), client.most(Held::request_bytes));
    client.session.close();
    EXPECT_EQ(client.held(Held::request_bytes), 0u);
}

TEST_F(SessionTest, WhatComesBeyondTheLimitIsRefused) {
    std::string keys;
    for (int i = 0; i < 1000; ++i) {
        put_string(keys, std::string(1000, 'k'));
    }
    while (client.replies() == 0) {
        client.ask(Op::stat, keys, 1000, Clock::duration(0));
        ASSERT_LE(client.held(Held::request_bytes), client.most(Held::request_bytes));
        ASSERT_LT(client.last, 100u);
    }
    EXPECT_GT(client.last, 50u);
    std::string items;
    for (int i = 0; i < 10; ++i) {
        put_get_item(items, {std::string(100'000, 'k'), std::vector<Range>{}});
    }
    client.ask(Op::get, items, 10, Clock::duration(0));
    EXPECT_EQ(client.replies(), 11u) << "one for each item";
    EXPECT_FALSE(client.record->doomed());
    client.session.close();
    EXPECT_EQ(client.held(Held::request_bytes), 0u);
}

// They renew no time-out of what stands still.
TEST_F(SessionTest, RequestsAreNoProgress) {
    client.ask(Op::ping);
    const auto first = client.session.look(Clock::now()).due;
    client.ask(Op::ping);
    EXPECT_EQ(client.session.look(Clock::now()).due, first);
    EXPECT_TRUE(client.session.look(first + std::chrono::seconds(1)).over);
}

TEST_F(SessionTest, WhatIsNoReplyIsTakenInTimeToo) {
    const auto amount = client.sending->begin_other(client.most(Held::reply_bytes));
    EXPECT_FALSE(client.session.reads());
    const auto due = client.session.look(Clock::now()).due;
    EXPECT_TRUE(client.session.look(due + std::chrono::seconds(1)).over);
    client.sending->other_sent(amount);
    EXPECT_TRUE(client.session.reads());
    EXPECT_EQ(client.held(Held::reply_bytes), 0u);
    EXPECT_EQ(client.sending->stands_still(), std::nullopt);
}

TEST_F(SessionTest, WhatIsNeverTakenIsGivenBack) {
    client.ask(Op::ping);
    client.sending->begin_other(1000);
    EXPECT_GT(client.held(Held::reply_bytes), 1000u);
    client.sending->forget_in_flight();
    EXPECT_EQ(client.held(Held::reply_bytes), 0u);
    EXPECT_EQ(client.sending->in_flight(), 0u);
}

TEST_F(SessionTest, GetsBeyondTheLimitWaitAsRequests) {
    std::string one;
    put_get_item(one, {"missing", std::vector<Range>{}});
    std::string body;
    for (int i = 0; i < 50; ++i) {
        body += one;
    }
    for (int i = 0; i < 4000; ++i) {
        client.ask(Op::get, body, 50);
    }
    EXPECT_LE(client.held(Held::get_bytes), client.most(Held::get_bytes));
    EXPECT_EQ(client.sending->amounts.size(), Sending::kMaxMessages);
    EXPECT_FALSE(client.record->doomed());
    client.take_all();
    EXPECT_EQ(client.replies(), 200'000u);
    EXPECT_EQ(client.held(Held::gets), 0u);
    EXPECT_EQ(client.held(Held::get_bytes), 0u);
}

TEST_F(SessionTest, AnAbandonedRequestWaitsNoMore) {
    while (client.session.reads()) {
        client.ask(Op::ping);
    }
    client.ask(Op::ping);
    const std::uint64_t before = client.held(Held::request_bytes);
    client.ask(Op::ping);
    EXPECT_GT(client.held(Held::request_bytes), before);
    client.session.on_request({token, client.last, Op::abandon, 0, 0, 0}, {});
    EXPECT_EQ(client.held(Held::request_bytes), before);
}

// A carrier may bring many at once: what comes after the end of a turn waits for the next.
TEST_F(SessionTest, AnotherIsServedBetweenTheTurnsOfOne) {
    std::string keys;
    for (int i = 0; i < 64; ++i) {
        put_string(keys, "key" + std::to_string(i));
    }
    for (int i = 0; i < 5000; ++i) {
        client.ask(Op::stat, keys, 64, Clock::duration(0));
    }
    EXPECT_EQ(client.replies(), 0u);
    Client other(*this);
    other.ask(Op::ping, {}, 1, Clock::duration(0));
    while (other.replies() == 0) {
        ASSERT_TRUE(turns.run());
    }
    EXPECT_LT(client.replies(), 5000u);
    while (client.replies() < 5000) {
        client.sending->take(5000);
        turns.run();
    }
    EXPECT_EQ(client.held(Held::calls), 0u);
}

}  // namespace
}  // namespace ucxstore::test

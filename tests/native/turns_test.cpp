// Whose turn it is, on a thread with several sessions.
#include "sessions/turns.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

// Sessions that work as many turns as they are told, of so many units each.
class TurnsTest : public ::testing::Test {
  protected:
    struct Session {
        Session(TurnsTest& test, const std::string& origin, std::string name)
            : name(std::move(name)), seat(test.turns, test.ledger->open(origin), [this, &test] {
                  test.order.push_back(this->name);
                  seat.account().work(units);
                  return --left > 0;
              }) {}
        void want(int turns) {
            left = turns;
            seat.want();
        }
        const std::string name;
        std::uint64_t units = Account::kTurn;
        int left = 0;
        Turns::Seat seat;
    };

    std::string run() {
        while (turns.run()) {
        }
        std::string all;
        for (const std::string& one : std::exchange(order, {})) {
            all += one;
        }
        return all;
    }

    const std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
    Turns turns;
    std::vector<std::string> order;
};

TEST_F(TurnsTest, SessionsTakeTurns) {
    Session a(*this, "x", "a");
    Session b(*this, "x", "b");
    a.units = b.units = 1'000'000'000;  // more than a busy machine takes for it
    a.want(3);
    b.want(3);
    const std::string order = run();
    EXPECT_TRUE(order == "ababab" || order == "bababa") << order;
}

TEST_F(TurnsTest, AnOriginOfManySessionsHasTheTurnsOfOne) {
    Session a(*this, "many", "a");
    Session b(*this, "many", "a");
    Session c(*this, "many", "a");
    Session d(*this, "one", "d");
    for (Session* const session : {&a, &b, &c, &d}) {
        session->units = 1'000'000'000;
        session->want(session == &d ? 3 : 1);
    }
    const std::string order = run();
    EXPECT_TRUE(order == "adadad" || order == "dadada") << order;
}

TEST_F(TurnsTest, WhoWasIdleWaitsForOneTurn) {
    Session greedy(*this, "greedy", "g");
    Session honest(*this, "honest", "h");
    greedy.units = honest.units = 1'000'000'000;
    greedy.want(1);
    run();
    greedy.want(10);
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(turns.run());
    }
    order.clear();
    honest.want(3);
    const std::string rest = run();
    EXPECT_EQ(rest[0], 'h');
    EXPECT_LT(rest.find('g'), 3u) << "it has saved nothing";
}

TEST_F(TurnsTest, ATurnHasAnEnd) {
    Session a(*this, "x", "a");
    EXPECT_TRUE(a.seat.is_over()) << "it has none";
    a.seat.work_until(Clock::now() + std::chrono::hours(1));
    EXPECT_FALSE(a.seat.is_over());
    a.seat.account().work(Account::kTurn);
    EXPECT_TRUE(a.seat.is_over());
}

TEST_F(TurnsTest, ASessionThatGoesHasNone) {
    auto gone = std::make_unique<Session>(*this, "x", "a");
    gone->want(1);
    gone.reset();
    EXPECT_TRUE(turns.empty());
    EXPECT_FALSE(turns.run());
}

}  // namespace
}  // namespace ucxstore::test

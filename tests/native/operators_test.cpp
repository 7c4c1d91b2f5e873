// What operators ask, and who answers it.
#include "sessions/operators.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "loopback.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

Outcome<std::string> ask(Operators& operators, const std::string& text) {
    std::promise<Outcome<std::string>> answered;
    operators.ask({text, 7, "peer"},
                  [&](Outcome<std::string> outcome) { answered.set_value(std::move(outcome)); });
    return answered.get_future().get();
}

TEST(OperatorsTest, AreAnsweredByTheHandler) {
    const auto operators = std::make_shared<Operators>();
    operators->set_handler([](const Operators::Request& request) {
        return request.text + std::to_string(request.session) + request.peer;
    });
    const auto outcome = ask(*operators, "a");
    EXPECT_EQ(outcome.value, "a7peer");
    EXPECT_EQ(outcome.failure, "");
}

TEST(OperatorsTest, AreToldWhatFails) {
    const auto operators = std::make_shared<Operators>();
    EXPECT_EQ(ask(*operators, "a").failure, "the server is ending");
    operators->set_handler(
        [](const Operators::Request&) -> std::string { throw std::runtime_error("no"); });
    EXPECT_EQ(ask(*operators, "a").failure, "no");
    EXPECT_TRUE(operators->close(kPatience));
    EXPECT_EQ(ask(*operators, "a").failure, "the server is ending");
}

TEST(OperatorsTest, AreAnsweredOneAfterAnother) {
    const auto operators = std::make_shared<Operators>();
    std::atomic<int> running = 0;
    std::atomic<int> most = 0;
    operators->set_handler([&](const Operators::Request& request) {
        most = std::max(most.load(), ++running);
        std::this_thread::sleep_for(1ms);
        --running;
        return request.text;
    });
    std::vector<std::string> answers;  // by the one thread
    std::promise<void> last;
    for (int i = 0; i < 20; ++i) {
        operators->ask({std::to_string(i), 1, ""}, [&](const Outcome<std::string>& outcome) {
            answers.push_back(outcome.value);
            if (answers.size() == 20) {
                last.set_value();
            }
        });
    }
    EXPECT_EQ(last.get_future().wait_for(kPatience), std::future_status::ready);
    EXPECT_TRUE(operators->close(kPatience));
    EXPECT_EQ(most, 1);
    EXPECT_EQ(answers.front(), "0");
    EXPECT_EQ(answers.back(), "19");
}

TEST(OperatorsTest, AHandlerGoesOnceItIsNotRunning) {
    const auto operators = std::make_shared<Operators>();
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> seen = held;
    std::promise<void> begun;
    std::promise<void> goes_on;
    operators->set_handler([held, &begun, &goes_on](const Operators::Request&) {
        begun.set_value();
        goes_on.get_future().wait();
        return std::string("done");
    });
    held.reset();
    std::promise<std::string> answered;
    operators->ask({"a", 1, ""},
                   [&](const Outcome<std::string>& outcome) { answered.set_value(outcome.value); });
    begun.get_future().wait();
    EXPECT_FALSE(operators->close(1ms));
    EXPECT_FALSE(seen.expired());
    goes_on.set_value();
    EXPECT_EQ(answered.get_future().get(), "done");
    EXPECT_TRUE(operators->close(kPatience));
    EXPECT_TRUE(eventually([&] { return seen.expired(); }));
}

TEST(OperatorsTest, ASessionThatNobodyAnswersGoesOn) {
    Loopback both;  // whose server has no handler
    const auto asked = call_operation(Op::operate, strings({"{}"}));
    EXPECT_EQ(error_of([&] { both.run(asked); }), ErrorKind::storage);
    both.set("k", pattern(10));
    EXPECT_EQ(both.get("k"), pattern(10));
}

}  // namespace
}  // namespace ucxstore::test

// The memory of gets that wait, of all clients together.
#include "server/get_budget.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace ucxstore {
namespace {

constexpr std::uint64_t kUnit = GetBudget::kUnit;
constexpr std::uint64_t kLimit = 64 * kUnit;

using Account = GetBudget::Account;

TEST(GetBudgetTest, WhoNeedsLittleTakesNothing) {
    const auto budget = std::make_shared<GetBudget>(kLimit);
    Account account(budget, "a");
    EXPECT_TRUE(account.add(kUnit));
    EXPECT_EQ(budget->taken(), 0u);
    EXPECT_TRUE(account.add(1));
    EXPECT_EQ(budget->taken(), kUnit);
    EXPECT_TRUE(account.add(3 * kUnit));
    EXPECT_EQ(budget->taken(), 4 * kUnit);
    account.remove(4 * kUnit + 1);
    EXPECT_EQ(account.bytes(), 0u);
    EXPECT_EQ(budget->taken(), kUnit);
}

TEST(GetBudgetTest, AllIsGivenBackAtTheEnd) {
    const auto budget = std::make_shared<GetBudget>(kLimit);
    {
        const auto account = std::make_shared<Account>(budget, "a");
        EXPECT_TRUE(account->add(10 * kUnit));
        const GetBudget::Hold hold(account, 10 * kUnit);
        EXPECT_GT(budget->taken(), 8 * kUnit);
    }
    EXPECT_EQ(budget->taken(), 0u);
}

TEST(GetBudgetTest, TheLimitHolds) {
    const auto budget = std::make_shared<GetBudget>(kLimit);
    Account account(budget, "a");
    EXPECT_TRUE(account.add(kLimit));
    EXPECT_TRUE(account.add(kUnit));
    EXPECT_FALSE(account.add(1));
    EXPECT_EQ(account.bytes(), kLimit + kUnit);
    Account another(budget, "a");
    EXPECT_FALSE(another.add(2 * kUnit)) << "of the same origin";
}

TEST(GetBudgetTest, OneOriginDoesNotKeepTheOthersOut) {
    const auto budget = std::make_shared<GetBudget>(kLimit);
    Account greedy(budget, "greedy");
    EXPECT_TRUE(greedy.add(kLimit));
    std::vector<std::unique_ptr<Account>> others;
    for (const char* const origin : {"a", "b", "c"}) {
        others.push_back(std::make_unique<Account>(budget, origin));
        EXPECT_TRUE(others.back()->add(kLimit / 4 + kUnit));
        EXPECT_FALSE(others.back()->add(1)) << "it has its quarter";
    }
    EXPECT_EQ(budget->taken(), kLimit - kUnit + 3 * (kLimit / 4));
    Account last(budget, "d");
    EXPECT_FALSE(last.add(2 * kUnit));
    others.pop_back();
    EXPECT_TRUE(last.add(2 * kUnit));
}

}  // namespace
}  // namespace ucxstore

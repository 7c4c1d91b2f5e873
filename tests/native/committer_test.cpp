// Committer: each change is answered as what has become of it, also where memory runs out.
#include "storage/committer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <tuple>

#include "files/directory_root.hpp"
#include "scarce.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

class Named : public Committer::Change {
  public:
    std::atomic<int> named = 0;

  private:
    std::uint64_t bytes() const override { return 1; }
    std::string directory() const override { return ""; }
    void start() noexcept override {}
    void flush() override {}
    void name() override { ++named; }
};

class CommitterTest : public testing::TestWithParam<std::tuple<bool, Durability>> {};

INSTANTIATE_TEST_SUITE_P(All, CommitterTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Durability::none, Durability::fsync)),
                         [](const auto& info) {
                             return std::string(std::get<0>(info.param) ? "Elsewhere"
                                                                        : "Anywhere") +
                                    (std::get<1>(info.param) == Durability::fsync ? "Synced" : "");
                         });

// Of an origin whose name takes memory of its own.
TEST_P(CommitterTest, AnswersEachChangeWhereMemoryRunsOut) {
    const auto [elsewhere, how] = GetParam();
    const TemporaryDirectory folder;
    const DirectoryRoot root(folder.path());
    const Whose whose{.origin = "an origin whose name takes memory of its own", .session = 1};
    bool ran_out = true;
    for (std::size_t after = 0; ran_out && after < 100; ++after) {
        Committer committer(root, how, elsewhere);
        Named changes[2];
        std::atomic<int> answered = 0;
        std::atomic<int> failed = 0;
        {
            const ScarceMemory scarce(after, "ucxstore-files");
            for (Named& change : changes) {
                committer.add(
                    change,
                    [&](const std::string& failure) {
                        failed += failure.empty() ? 0 : 1;
                        ++answered;
                    },
                    whose);
            }
            ASSERT_TRUE(eventually([&] { return answered == 2; })) << after;
            ran_out = scarce.ran_out();
        }
        if (how != Durability::fsync) {  // else it may have failed after it had its name
            EXPECT_EQ(changes[0].named + changes[1].named + failed, 2) << after;
        }
    }
    EXPECT_FALSE(ran_out);
}

}  // namespace
}  // namespace ucxstore::test

// What a process holds of a server's memory is bounded, and known.
#include "local_client/held.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "support.hpp"

namespace ucxstore::test {
namespace {

Fd copy_of(int descriptor) { return Fd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

class Holding : public testing::Test {
  protected:
    explicit Holding(std::uint64_t limit = 64 * kMiB)
        : reader_limit(limit),
          pins(std::make_shared<shared::Pins>(table.take_descriptors())),
          held(std::make_shared<HeldValues>(
              pins, std::make_shared<ReaderLimitView>(copy_of(reader_limit.descriptor())),
              [this] { ++told; })) {}

    ReaderLimit reader_limit;
    shared::PinTable table;
    std::shared_ptr<shared::Pins> pins;
    std::atomic<int> told = 0;
    std::shared_ptr<HeldValues> held;
};

TEST_F(Holding, IsBounded) {
    auto first = held->add(1, 40 * kMiB);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(held->add(2, 25 * kMiB).has_value());
    auto same = held->add(1, 40 * kMiB);
    EXPECT_TRUE(same.has_value()) << "a block counts once";
    first.reset();
    EXPECT_FALSE(held->add(2, 25 * kMiB).has_value());
    same.reset();
    EXPECT_TRUE(held->add(2, 25 * kMiB).has_value());
}

TEST_F(Holding, OfOthersCountsToo) {
    reader_limit.set_held(50 * kMiB);
    EXPECT_FALSE(held->add(1, 20 * kMiB).has_value());
    // Of these, so much was this process's own, which it has let go of since.
    table.set_held(30 * kMiB);
    EXPECT_TRUE(held->add(1, 20 * kMiB).has_value());
    EXPECT_FALSE(held->add(1, 50 * kMiB).has_value());
    reader_limit.set_held(~std::uint64_t{0});
    EXPECT_FALSE(held->add(1, 1).has_value());
}

TEST_F(Holding, TellsOfLargeChanges) {
    auto small = held->add(1, kMiB);
    EXPECT_EQ(told, 0);
    auto large = held->add(2, 4 * kMiB);
    EXPECT_EQ(told, 1);
    small.reset();
    EXPECT_EQ(told, 1);
    large.reset();
    EXPECT_EQ(told, 2);
}

TEST_F(Holding, LeavesPinsForReads) {
    std::vector<HeldValues::Hold> holds;
    while (auto hold = held->add(holds.size() % 7, 100)) {
        holds.push_back(std::move(*hold));
        ASSERT_LE(holds.size(), shared::kPins / 2);
    }
    EXPECT_EQ(holds.size(), shared::kPins / 2);
    holds.pop_back();
    EXPECT_TRUE(held->add(3, 100).has_value());
}

TEST_F(Holding, AForkedChildCountsOnAndTellsNobody) {
    auto hold = held->add(1, 40 * kMiB);
    std::atomic<bool> stop = false;
    std::thread busy([&] {  // has the lock most of the time
        while (!stop) {
            held->add(5, 1);
        }
    });
    for (int i = 0; i < 50; ++i) {
        const pid_t pid = fork();
        if (pid == 0) {
            const int before = told;
            const bool over = held->add(2, 30 * kMiB).has_value();
            hold.reset();
            const bool fits = held->add(2, 30 * kMiB).has_value();
            _exit(!over && fits && told == before ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_EQ(status, 0);
    }
    stop = true;
    busy.join();
}

TEST(Boards, CannotBeChangedByReaders) {
    ReaderLimit reader_limit(1000);
    const Fd descriptor = copy_of(reader_limit.descriptor());
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0),
              MAP_FAILED);
    EXPECT_EQ(pwrite(descriptor.get(), "x", 1, 0), -1);
    const ReaderLimitView view(descriptor);
    EXPECT_EQ(view.limit(), 1000u);
    reader_limit.set_held(77);
    EXPECT_EQ(view.held(), 77u);
}

TEST(Boards, OfAnotherKindAreRefused) {
    const Fd other(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(error_of([&] { ReaderLimitView view(other); }), ErrorKind::protocol);
    ASSERT_EQ(ftruncate(other.get(), 4096), 0);
    ASSERT_EQ(fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_EQ(error_of([&] { ReaderLimitView view(other); }), ErrorKind::protocol);
}

}  // namespace
}  // namespace ucxstore::test

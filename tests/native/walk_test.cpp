// Walks over many keys: in steps, in bounded memory, stopped in between.
#include "sessions/walk.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <span>
#include <thread>

#include "base/status.hpp"
#include "sessions/walkers.hpp"
#include "storage/directory.hpp"
#include "storage/memory.hpp"
#include "support.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

// Few enough that a directory of some thousand names is read many times.
constexpr std::size_t kLittle = 1;

std::vector<std::string> some_keys(int count) {
    std::vector<std::string> keys;
    for (int i = 0; i < count; ++i) {
        const std::string number = std::to_string(i);
        keys.push_back("flat/" + number);
        keys.push_back("deep/" + number.substr(0, 1) + "/" + number + "/c");
        keys.push_back("deep/" + number + ".x");
    }
    std::ranges::sort(keys);
    return keys;
}

class WalkTest : public testing::TestWithParam<bool> {
  protected:
    WalkTest() {
        if (GetParam()) {
            storage_ = std::make_shared<DirectoryStorage>(directory_.path(), Durability::none,
                                                          Writers::Mode::none, kLittle);
        } else {
            storage_ = std::make_shared<MemoryStorage>();
        }
        for (const std::string& key : keys_) {
            storage_->receive(key, 0)->commit(false);
        }
    }

    // All keys, by pages.
    std::vector<std::string> list(const std::string& prefix, std::size_t page_bytes) {
        std::vector<std::string> found;
        std::string cursor;
        do {
            Page page = storage_->list(prefix, false, cursor, page_bytes);
            found.insert(found.end(), page.names.begin(), page.names.end());
            cursor = page.cursor;
        } while (!cursor.empty());
        return found;
    }
    Walk walk(StorageCall call) { return {storage_, std::move(call), brake_}; }

    TemporaryDirectory directory_;
    const std::vector<std::string> keys_ = some_keys(1500);
    std::shared_ptr<Storage> storage_;
    const std::shared_ptr<Brake> brake_ = std::make_shared<Brake>();
};

TEST_P(WalkTest, ListsAllKeysInOrderWhateverFitsIntoAPage) {
    EXPECT_EQ(list("", 100), keys_);
    EXPECT_EQ(list("", 1 << 20), keys_);
    const auto flat = list("flat/", 3000);
    EXPECT_EQ(flat.size(), 1500u);
    EXPECT_TRUE(std::ranges::is_sorted(flat));
    EXPECT_EQ(list("deep/1/", 3000).size(), 1 + 10 + 100 + 500u);
}

TEST_P(WalkTest, ListsFoldersByPages) {
    std::vector<std::string> found;
    std::string cursor;
    do {
        Page page = storage_->list("deep/", true, cursor, 500);
        found.insert(found.end(), page.names.begin(), page.names.end());
        cursor = page.cursor;
    } while (!cursor.empty());
    std::ranges::sort(found);
    EXPECT_EQ(std::ranges::unique(found).begin(), found.end());
    EXPECT_EQ(found.size(), 1500u + 10);
}

TEST_P(WalkTest, GoesOnInStepsAfterItHasForgottenWhatItHadListed) {
    Walk removal = walk(RemovePrefixCall{"deep/"});
    std::uint64_t steps = 0;
    std::optional<CallResult> result;
    while (!(result = removal.step(TimePoint::min()))) {
        EXPECT_EQ(removal.keys(), ++steps);  // a key each
        if (steps % 400 == 0) {
            removal.rest();
        }
    }
    EXPECT_EQ(std::get<Removed>(*result).keys, 3000u);
    EXPECT_EQ(list("", 1 << 20).size(), 1500u);

    Walk measure = walk(MeasureCall{""});
    while (!(result = measure.step(TimePoint::min()))) {
        measure.rest();
        if (measure.keys() == 20) {
            break;  // each of these steps has listed all anew
        }
    }
    while (!result) {
        result = measure.step(Clock::now() + 1ms);
    }
    EXPECT_EQ(std::get<Measure>(*result).keys, 1500u);
}

TEST_P(WalkTest, ChangesNothingOnceItIsStopped) {
    Walk removal = walk(RemovePrefixCall{""});
    EXPECT_FALSE(removal.step(TimePoint::min()));
    std::thread other([&] {
        try {
            while (!removal.step(Clock::now() + 1ms)) {
            }
        } catch (const Stopped&) {
        }
    });
    EXPECT_TRUE(eventually([&] { return !storage_->size("deep/0.x"); }));
    brake_->stop();
    storage_->receive("a/new", 0)->commit(false);
    storage_->receive("zz/new", 0)->commit(false);
    const auto left = list("", 1 << 20);
    other.join();
    EXPECT_EQ(list("", 1 << 20), left);
    EXPECT_EQ(storage_->size("a/new"), 0u);
    EXPECT_EQ(storage_->size("zz/new"), 0u);
    EXPECT_THROW(removal.step(TimePoint::max()), Stopped);
}

TEST_P(WalkTest, ChangesNothingOnceItsMandateHasEnded) {
    std::atomic<bool> ended = false;
    const auto mandate = std::make_shared<const Mandate>("origin", [&] {
        if (ended) {
            throw Error(ErrorKind::denied, "has expired");
        }
    });
    Walk removal(storage_, RemovePrefixCall{""}, brake_, {}, {}, mandate);
    EXPECT_FALSE(removal.step(TimePoint::min()));
    const auto left = list("", 1 << 20);
    ended = true;
    EXPECT_EQ(error_of([&] { removal.step(TimePoint::max()); }), ErrorKind::denied);
    EXPECT_EQ(list("", 1 << 20), left);

    auto walkers = std::make_shared<Walkers>();
    std::atomic<int> denied = 0;
    for (const StorageCall& call : {StorageCall(RemovePrefixCall{""}), StorageCall(MeasureCall{""}),
                                    StorageCall(ListCall{"", false, "", 1 << 20})}) {
        const auto errand = std::make_shared<Errand>(
            storage_, call, [](std::uint64_t) {},
            [&](const Answer& answer) { denied += answer.status == Status::denied ? 1 : 0; },
            CatchUp(), mandate);
        ASSERT_TRUE(walkers->start(errand));
    }
    EXPECT_TRUE(walkers->settle(kPatience));
    EXPECT_EQ(denied, 3);
    EXPECT_EQ(list("", 1 << 20), left);
}

TEST_P(WalkTest, TellsOnceHowItEnded) {
    auto walkers = std::make_shared<Walkers>();
    std::atomic<int> answers = 0;
    std::atomic<int> moves = 0;
    std::vector<std::shared_ptr<Errand>> errands;
    for (int i = 0; i < 40; ++i) {  // more than keep names between their steps
        errands.push_back(std::make_shared<Errand>(
            storage_, MeasureCall{"flat/"}, [&](std::uint64_t) { ++moves; },
            [&](Answer answer) {
                EXPECT_EQ(answer.status, Status::ok);
                Reader reader(std::as_bytes(std::span(answer.payload)));
                EXPECT_EQ(reader.u64(), 1500u);
                ++answers;
            }));
        ASSERT_TRUE(walkers->start(errands.back()));
    }
    EXPECT_TRUE(walkers->settle(kPatience));
    EXPECT_EQ(answers, 40);

    std::atomic<bool> answered = false;
    const auto stopped = std::make_shared<Errand>(
        storage_, RemovePrefixCall{""}, [](std::uint64_t) {},
        [&](const Answer&) { answered = true; });
    stopped->stop();
    ASSERT_TRUE(walkers->start(stopped));
    EXPECT_TRUE(walkers->settle(kPatience));
    EXPECT_FALSE(answered);
    EXPECT_EQ(list("", 1 << 20).size(), keys_.size());
}

TEST_P(WalkTest, WhatPaceThrowsEndsAListing) {
    if (!GetParam()) {
        GTEST_SKIP() << "memory is listed at once";
    }
    int left = 3;
    EXPECT_THROW(storage_->list("", false, "", 1 << 20,
                                [&] {
                                    if (--left == 0) {
                                        throw Stopped();
                                    }
                                }),
                 Stopped);
}

INSTANTIATE_TEST_SUITE_P(Storages, WalkTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Directory" : "Memory"; });

TEST(DirectoryListing, TakesBoundedMemoryHoweverManyNamesThereAre) {
    TemporaryDirectory directory;
    const int folder = open(directory.path().c_str(), O_DIRECTORY | O_RDONLY);
    std::string long_name(100, 'n');
    for (int i = 0; i < 30'000; ++i) {
        close(openat(folder, (long_name + std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
    }
    close(folder);
    DirectoryStorage storage(directory.path(), Durability::none, Writers::Mode::none, 1 << 20);
    const std::uint64_t before = heap_bytes();
    std::uint64_t most = 0;
    const Page page = storage.list("", false, "", 10'000, [&] {
        most = std::max(most, heap_bytes() - std::min(before, heap_bytes()));
    });
    EXPECT_EQ(page.names.size(), 10'000 / 107u);
    EXPECT_LT(most, 2u << 20);  // of 4 MB of names
    EXPECT_EQ(remove_prefix(storage, ""), 30'000u);
}

// Its memory has run out.
class NoMemory : public MemoryStorage {
  public:
    std::optional<std::uint64_t> size(const std::string&) override { throw std::bad_alloc(); }
    void remove(const std::string&, const Consent&) override { throw std::bad_alloc(); }
};

TEST(AnswerAtOnce, TellsOfAWantOfMemoryAndGoesOn) {
    const auto storage = std::make_shared<NoMemory>();
    for (const StorageCall& call : {StorageCall(StatCall{{"k"}}), StorageCall(RemoveCall{{"k"}})}) {
        EXPECT_EQ(answer_at_once(storage, call).status, Status::storage);
    }
}

// Has a folder that may not be opened, which every listing from before it is without.
class Locked : public MemoryStorage {
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes, const Pace& pace) override {
        Page page = MemoryStorage::list(prefix, delimited, cursor, max_bytes, pace);
        if (cursor <= "locked/") {
            page.unreadable = {"locked"};
        }
        return page;
    }
};

TEST(UnreadableFolder, IsToldOnceAndTheOtherKeysAreMeasuredAndRemoved) {
    const auto storage = std::make_shared<Locked>();
    for (const std::string& key : some_keys(20)) {
        storage->receive(key, 0)->commit(false);
    }
    Walk measuring(storage, MeasureCall{""}, std::make_shared<Brake>());
    std::optional<CallResult> result;
    while (!(result = measuring.step(TimePoint::min()))) {
        measuring.rest();  // so that it lists all again
    }
    EXPECT_EQ(std::get<Measure>(*result).keys, 60u);
    EXPECT_EQ(std::get<Measure>(*result).unreadable, std::vector<std::string>{"locked"});

    EXPECT_EQ(error_of([&] { remove_prefix(*storage, ""); }), ErrorKind::storage);
    EXPECT_EQ(measure(*storage, "", false).keys, 0u);
    EXPECT_EQ(measure(*storage, "", true).unreadable.size(), 1u);
}

}  // namespace
}  // namespace ucxstore::test

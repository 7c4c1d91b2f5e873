// What readers have pinned: what it costs to look at, who pays for it, and who loses it.
#include "shared/retired_blocks.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "scarce.hpp"
#include "shared/shelf.hpp"
#include "storage/memory.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kLimit = 64 * kMiB;

class Account : public Holder {
  public:
    explicit Account(std::string origin) : origin_(std::move(origin)) {}
    const std::string& origin() const override { return origin_; }
    void charge(std::uint64_t bytes) override {
        charged = bytes;
        ++looks;
        begun = true;
        while (stands) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(takes.load());
    }
    void lose(const std::string& why) override { lost = why; }

    std::atomic<std::uint64_t> charged = 0;
    std::atomic<int> looks = 0;  // at its tables
    std::atomic<bool> begun = false;
    std::atomic<bool> stands = false;  // so does whoever looks at them
    std::atomic<std::chrono::milliseconds> takes{};
    std::string lost;

  private:
    const std::string origin_;
};

// A reader that writes into its tables what it likes.
class Liar {
  public:
    explicit Liar(Shelf& shelf, const std::string& origin = "liar")
        : account(std::make_shared<Account>(origin)), table(shelf.add_reader(nullptr, account)) {
        descriptors_ = table->take_descriptors();
        memory_ = static_cast<std::byte*>(mmap(nullptr, kFamilyBytes, PROT_READ | PROT_WRITE,
                                               MAP_SHARED, descriptors_.table.get(), 0));
    }
    Liar(const Liar&) = delete;
    Liar& operator=(const Liar&) = delete;
    ~Liar() { munmap(memory_, kFamilyBytes); }

    std::uint64_t memory() const {
        struct stat status{};
        fstat(opened_.get(), &status);
        return static_cast<std::uint64_t>(status.st_blocks) * 512;
    }

    auto& pins(std::uint64_t number = 0) {
        return reinterpret_cast<PinTableMemory*>(memory_ + table_offset(number))->pins;
    }
    void use_all_tables() {
        opened_ = open_anew(descriptors_.table);
        std::uint64_t last = 0;
        while (const auto number = lock_table(opened_, last)) {
            last = *number;
        }
        EXPECT_EQ(last, kFamilyTables - 1);
        reinterpret_cast<FamilyHeader*>(memory_)->children = ~std::uint64_t{0};
    }

    const std::shared_ptr<Account> account;
    const std::shared_ptr<PinTable> table;

  private:
    PinTable::Descriptors descriptors_;
    Fd opened_;
    std::byte* memory_;
};

class Hoarding : public testing::Test {
  protected:
    bool put(const std::string& key, std::uint64_t size) {
        try {
            const auto incoming = storage_.receive(key, size);
            incoming->expect(size);
            std::memset(incoming->data(), 1, size);
            return incoming->commit(false);
        } catch (const NoRoomError&) {
            return false;
        }
    }
    int fill(std::uint64_t size) {
        int count = 0;
        while (put(std::to_string(count), size)) {
            ++count;
        }
        return count;
    }
    Place place_of_value(const std::string& key) {
        const auto value = storage_.find(key);
        for (std::uint32_t number = 1;; ++number) {
            const auto arena = shelf_->arena(number);
            if (shelf_->arena_with(*value) == number) {
                return place_of(number, offset_in_arena(*value));
            }
        }
    }
    // By the bytes there: each value begins with a number of its own.
    std::uint64_t offset_in_arena(const Region& value) {
        const auto number = *shelf_->arena_with(value);
        const auto arena = shelf_->arena(number);
        void* const memory =
            mmap(nullptr, arena.bytes, PROT_READ, MAP_SHARED, arena.descriptor.get(), 0);
        std::memcpy(value.data(), &marks_, sizeof(marks_));
        std::uint64_t at = 0;
        while (std::memcmp(static_cast<std::byte*>(memory) + at, &marks_, sizeof(marks_)) != 0) {
            at += Arenas::kPage;
        }
        ++marks_;
        munmap(memory, arena.bytes);
        return at;
    }

    const std::shared_ptr<Quota> quota_ = Quota::of_memory(kLimit);
    const std::shared_ptr<Shelf> shelf_ = Shelf::make({.bound = quota_});
    MemoryStorage storage_{quota_, false, shelf_};
    std::uint64_t marks_ = 0x1234'5678'9abc'def0;
};

// The places where a block of whole pages can begin, in several arenas.
void pin_all(Liar& liar) {
    liar.use_all_tables();
    for (std::uint64_t number = 0; number < kFamilyTables; ++number) {
        for (std::uint64_t i = 0; i < kPins; ++i) {
            const std::uint64_t at = number * kPins + i;
            const auto arena = static_cast<std::uint32_t>(1 + at % 8);
            liar.pins(number)[i] = place_of(arena, at / 8 * Arenas::kPage);
        }
    }
}

TEST_F(Hoarding, WhoPinsEverythingStopsNoOverwrite) {
    const int count = fill(512 << 10);
    ASSERT_GE(count, 100);
    Liar liar(*shelf_);
    pin_all(liar);
    int refused = 0;
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < count; ++i) {
            refused += put(std::to_string(i), 512 << 10) ? 0 : 1;
            ASSERT_LE(quota_->used(), kLimit);
        }
    }
    EXPECT_EQ(refused, 0) << "of " << 2 * count;
    EXPECT_NE(liar.account->lost.find("places where no value begins"), std::string::npos)
        << liar.account->lost;
    EXPECT_EQ(liar.account->charged, 0u);
}

TEST_F(Hoarding, WhatIsReplacedIsChargedToWhoHasItPinned) {
    ASSERT_TRUE(put("a", 100'000));
    Liar liar(*shelf_);
    Liar other(*shelf_, "other");
    liar.pins()[5] = place_of_value("a");
    shelf_->sweep();
    EXPECT_EQ(liar.account->charged, 0u);
    ASSERT_TRUE(put("a", 100'000));
    shelf_->sweep();
    EXPECT_EQ(liar.account->charged, 102'400u);
    EXPECT_EQ(other.account->charged, 0u);
    EXPECT_EQ(shelf_->waiting(), 102'400u);
    liar.pins()[5] = 0;
    shelf_->sweep();
    EXPECT_EQ(liar.account->charged, 0u);
    EXPECT_EQ(shelf_->waiting(), 0u);
}

TEST_F(Hoarding, WhoKeepsToHisShareLosesNothing) {
    ASSERT_TRUE(put("seen", 4 * kMiB));
    Liar honest(*shelf_, "honest");
    honest.pins()[5] = place_of_value("seen");
    shelf_->sweep();
    const int count = fill(512 << 10);
    Liar liar(*shelf_);
    pin_all(liar);
    ASSERT_TRUE(put("seen", 4 * kMiB));
    for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(put(std::to_string(i), 512 << 10)) << i;
    }
    EXPECT_NE(liar.account->lost, "");
    EXPECT_EQ(honest.account->lost, "");
    EXPECT_EQ(honest.account->charged, 4 * kMiB + Arenas::kPage);
}

TEST_F(Hoarding, WhereNoBlockBeginsNothingIsPinned) {
    ASSERT_TRUE(put("a", 100'000));
    const Place place = place_of_value("a");
    Liar liar(*shelf_);
    for (std::uint64_t i = 0; i < kPins; ++i) {
        liar.pins()[i] = place + 1 + i % 3;
    }
    liar.pins()[0] = place_of(77, 0);
    liar.pins()[1] = ~Place{0};
    EXPECT_FALSE(shelf_->pins_any(*liar.table));
    shelf_->sweep();
    EXPECT_EQ(shelf_->counts().arena_bytes_held, 0u);
    ASSERT_TRUE(put("a", 100'000));
    shelf_->sweep();
    EXPECT_EQ(shelf_->waiting(), 0u);
    liar.pins()[2] = place_of_value("a");
    EXPECT_TRUE(shelf_->pins_any(*liar.table));
    shelf_->sweep();
    EXPECT_EQ(shelf_->counts().arena_bytes_held, 102'400u);
}

TEST_F(Hoarding, WhoFillsTablesWithNonsenseLosesWhatIsPinned) {
    ASSERT_TRUE(put("a", 100'000));
    Liar liar(*shelf_);
    liar.pins()[0] = place_of_value("a");
    liar.use_all_tables();
    for (std::uint64_t i = 0; i < kPins; ++i) {
        liar.pins(1)[i] = place_of(1, i * Arenas::kPage) + 1;
    }
    ASSERT_TRUE(put("a", 100'000));
    shelf_->sweep();
    EXPECT_EQ(liar.account->lost, "");
    EXPECT_EQ(shelf_->waiting(), 102'400u);
    liar.pins(2)[0] = place_of(77, 0);
    shelf_->sweep();
    EXPECT_EQ(liar.account->lost, "it has pinned 4097 places where no value begins");
    EXPECT_EQ(liar.account->charged, 0u);
    EXPECT_EQ(shelf_->waiting(), 0u);
    EXPECT_EQ(shelf_->counts().arena_bytes_held, 0u);
}

TEST_F(Hoarding, WhoIsRefusedAsksForFewLooks) {
    ASSERT_TRUE(put("a", 100'000));
    Liar slow(*shelf_);
    slow.account->takes = std::chrono::milliseconds(2);
    slow.pins()[0] = place_of_value("a");
    ASSERT_TRUE(put("a", 100'000));
    shelf_->sweep();
    const int before = slow.account->looks;
    const TimePoint begun = Clock::now();
    for (int i = 0; i < 1000; ++i) {
        shelf_->make_room(kMiB, i % 2 == 0);
    }
    // With `needed`, two looks each. And what was saved.
    EXPECT_LE(slow.account->looks - before,
              2 * (1 + (Clock::now() - begun) / std::chrono::milliseconds(18)) +
                  RetiredBlocks::kSaved / slow.account->takes.load());
    EXPECT_EQ(shelf_->waiting(), 102'400u);
    // What no look has seen is looked at.
    ASSERT_TRUE(put("b", 2 * kMiB));
    ASSERT_TRUE(put("b", 2 * kMiB));
    shelf_->make_room(kMiB, false);
    EXPECT_EQ(shelf_->waiting(), 102'400u);
}

TEST_F(Hoarding, WhatWasJustLetGoOfMakesRoomAtOnce) {
    ASSERT_TRUE(put("a", 100'000));
    Liar slow(*shelf_);
    slow.account->takes = std::chrono::milliseconds(2);
    slow.pins()[0] = place_of_value("a");
    ASSERT_TRUE(put("a", 100'000));
    shelf_->sweep();
    EXPECT_EQ(shelf_->waiting(), 102'400u);
    slow.pins()[0] = 0;
    shelf_->make_room(kMiB, false);
    EXPECT_EQ(shelf_->waiting(), 0u);
}

TEST_F(Hoarding, ALookIsBounded) {
    Liar liar(*shelf_);
    pin_all(liar);
    std::size_t told = 0;
    EXPECT_FALSE(
        liar.table->collect([&](std::span<const Place> places) { told += places.size(); }));
    EXPECT_LE(told, PinTable::kMostPins + kPins);
    // What a family has from its parent counts once.
    for (std::uint64_t number = 0; number < kFamilyTables; ++number) {
        for (std::uint64_t i = 0; i < kPins; ++i) {
            liar.pins(number)[i] = place_of(1, i * Arenas::kPage);
        }
    }
    told = 0;
    EXPECT_TRUE(liar.table->collect([&](std::span<const Place> places) { told += places.size(); }));
    EXPECT_EQ(told, kPins);
}

TEST_F(Hoarding, ToAskForLooksCostsFewOfThem) {
    std::vector<std::unique_ptr<Liar>> liars;
    for (int i = 0; i < 4; ++i) {
        liars.push_back(std::make_unique<Liar>(*shelf_));
        liars.back()->account->takes = std::chrono::milliseconds(1);
    }
    const TimePoint begun = Clock::now();
    for (int i = 0; i < 20'000; ++i) {
        shelf_->sweep_soon();
    }
    const auto& looks = liars[0]->account->looks;
    EXPECT_TRUE(eventually([&] { return looks >= 1; }));
    EXPECT_LE(looks, 2 + (Clock::now() - begun) / std::chrono::milliseconds(1));
    // What is asked for while one goes on follows it.
    const int before = looks;
    EXPECT_TRUE(eventually([&] {
        shelf_->sweep_soon();
        return looks > before;
    }));
}

TEST_F(Hoarding, NobodyWaitsForALookButWhoNeedsRoom) {
    ASSERT_TRUE(put("a", 100'000));
    const Liar slow(*shelf_);
    slow.account->stands = true;
    shelf_->sweep_soon();
    ASSERT_TRUE(eventually([&] { return slow.account->begun.load(); }));
    std::atomic<int> done = 0;
    std::thread others([&] {
        const auto table = shelf_->add_reader();
        ++done;
        EXPECT_TRUE(put("b", 100'000));
        ++done;
        EXPECT_GT(shelf_->counts().arena_bytes, 0u);
        ++done;
        EXPECT_EQ(storage_.memory().values, 2u);
        ++done;
        shelf_->forget_gone();
        ++done;
    });
    EXPECT_TRUE(eventually([&] { return done == 5; }, std::chrono::seconds(5))) << done;
    slow.account->stands = false;
    others.join();
}

TEST_F(Hoarding, WhatProcessesOfOneOriginShareCountsOnce) {
    ASSERT_TRUE(put("shared", 10 * kMiB));
    std::vector<std::unique_ptr<Liar>> workers;
    for (int i = 0; i < 8; ++i) {
        workers.push_back(std::make_unique<Liar>(*shelf_, "workers"));
        workers.back()->pins()[7] = place_of_value("shared");
    }
    shelf_->sweep();
    ASSERT_TRUE(put("shared", 10 * kMiB));
    shelf_->sweep(true);
    for (const auto& worker : workers) {
        EXPECT_EQ(worker->account->lost, "");
        EXPECT_EQ(worker->account->charged, 10 * kMiB + Arenas::kPage);
    }
}

TEST_F(Hoarding, NobodyLosesWhatOthersKeepAnyway) {
    ASSERT_TRUE(put("both", 4 * kMiB));
    Liar honest(*shelf_, "honest");  // is told that it may hold so much
    honest.pins()[0] = place_of_value("both");
    shelf_->sweep();
    quota_->take_anyway(50 * kMiB);
    shelf_->sweep();
    shelf_->sweep();  // from now on newcomers may hold less
    Liar greedy(*shelf_, "greedy");
    Liar other(*shelf_, "greedy");
    greedy.pins()[0] = other.pins()[0] = place_of_value("both");
    storage_.remove("both");
    ASSERT_LT(quota_->room_for_readers(), 4 * kMiB);
    shelf_->sweep(true);
    EXPECT_EQ(greedy.account->lost, "");
    EXPECT_EQ(other.account->lost, "");
    honest.pins()[0] = 0;
    shelf_->sweep(true);  // now it is free once both have gone
    EXPECT_NE(greedy.account->lost, "");
    EXPECT_NE(other.account->lost, "");
    EXPECT_EQ(honest.account->lost, "");
    EXPECT_EQ(shelf_->waiting(), 0u);
    quota_->give(50 * kMiB);
}

TEST_F(Hoarding, ManyWhoPinEverythingGoAfterOneLook) {
    const int count = fill(512 << 10);
    Liar honest(*shelf_, "honest");
    std::vector<std::unique_ptr<Liar>> liars;
    for (int i = 0; i < 6; ++i) {
        liars.push_back(std::make_unique<Liar>(*shelf_, "liar" + std::to_string(i % 2)));
        pin_all(*liars.back());
    }
    for (int i = 0; i < std::min(count, 7); ++i) {
        storage_.remove(std::to_string(i));
    }
    ASSERT_GT(shelf_->waiting(), quota_->room_for_readers());
    // Looks that were asked for have ended.
    shelf_->sweep();
    shelf_->sweep();
    const int before = honest.account->looks;
    shelf_->sweep(true);
    for (const auto& liar : liars) {
        EXPECT_NE(liar->account->lost, "");
    }
    EXPECT_EQ(shelf_->waiting(), 0u);
    EXPECT_LE(honest.account->looks - before, 3);
}

TEST_F(Hoarding, WhatANewcomerIsToldTakesNothingFromOthers) {
    ASSERT_TRUE(put("seen", 12 * kMiB));
    Liar first(*shelf_, "first");
    shelf_->sweep();
    ASSERT_GE(quota_->room_for_readers(), 12 * kMiB + Arenas::kPage);
    first.pins()[0] = place_of_value("seen");
    quota_->take_anyway(40 * kMiB);
    const Liar second(*shelf_, "second");
    ASSERT_LT(quota_->room_for_readers(), 12 * kMiB);
    storage_.remove("seen");
    shelf_->sweep(true);
    EXPECT_EQ(first.account->lost, "");
    quota_->give(40 * kMiB);
}

TEST_F(Hoarding, ALookMakesNoMemoryOfTables) {
    Liar liar(*shelf_);
    liar.use_all_tables();
    liar.pins(100)[700] = place_of(1, 0);
    const std::uint64_t before = liar.memory();
    std::vector<Place> told;
    EXPECT_TRUE(liar.table->collect([&](std::span<const Place> places) {
        told.insert(told.end(), places.begin(), places.end());
    }));
    EXPECT_EQ(told, std::vector<Place>{place_of(1, 0)});
    EXPECT_EQ(liar.memory(), before);
}

// Where there is no memory for a look, each block is freed once all the same.
TEST_F(Hoarding, ALookForWhichThereIsNoMemoryLosesNoBlock) {
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    Liar reader(*shelf_);  // who keeps them from being freed at once
    int ran_out = 0;
    for (std::size_t after = 0; after < 60; ++after) {
        for (int i = 0; i < 40; ++i) {
            ASSERT_TRUE(put(std::to_string(i), 1000));
        }
        shelf_->sweep();
        for (int i = 0; i < 40; ++i) {
            storage_.remove(std::to_string(i));
        }
        ASSERT_GT(shelf_->waiting(), 0u);
        pthread_setname_np(pthread_self(), "ucxstore-srv-t");  // whose memory is scarce
        {
            const ScarceMemory scarce(after);
            try {
                shelf_->sweep();
            } catch (const std::bad_alloc&) {
                ++ran_out;
            }
        }
        pthread_setname_np(pthread_self(), name);
        shelf_->sweep();
        ASSERT_EQ(shelf_->waiting(), 0u);
        ASSERT_EQ(shelf_->counts().arena_bytes_used, 0u) << after;
    }
    EXPECT_GT(ran_out, 5);
}

TEST_F(Hoarding, ReadersAreToldWhatTheyMayHold) {
    const ReaderLimitView reader_limit(shelf_->reader_limit());
    EXPECT_EQ(reader_limit.limit(), kLimit / 4);
    const Liar reader(*shelf_);
    ASSERT_TRUE(put("a", 40 * kMiB));
    shelf_->sweep();
    EXPECT_LT(reader_limit.limit(), (kLimit - 40 * kMiB) / 2);
    EXPECT_GE(reader_limit.limit(), kLimit / 32);
    const auto little = Shelf::make({.most_held = 5000, .bound = quota_});
    EXPECT_EQ(ReaderLimitView(little->reader_limit()).limit(), 5000u);
}

}  // namespace
}  // namespace ucxstore::test

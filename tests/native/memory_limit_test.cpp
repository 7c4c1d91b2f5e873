// The limit of a server's memory: what counts, and that nothing passes it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "storage/memory.hpp"
#include "storage/spaces.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLimit = 64ull << 20;

std::string text_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

class MemoryLimit : public testing::TestWithParam<bool> {
  protected:
    static std::shared_ptr<Shelf> shelf_of(const std::shared_ptr<Quota>& quota,
                                           std::uint64_t keep = 0) {
        return Shelf::make({.keep_bytes = keep, .bound = quota});
    }
    bool put(const std::string& key, std::uint64_t size) { return put(storage_, key, size); }
    static bool put(Storage& storage, const std::string& key, std::uint64_t size) {
        try {
            return storage.receive(key, size)->commit(false);
        } catch (const NoRoomError&) {
            return false;
        }
    }
    std::uint64_t fill(std::uint64_t size) {
        std::uint64_t count = 0;
        while (put("new/" + std::to_string(count), size)) {
            ++count;
        }
        return count;
    }

    const std::shared_ptr<Quota> quota_ = Quota::of_memory(kLimit, "; raise it");
    const std::shared_ptr<Shelf> shelf_ = GetParam() ? shelf_of(quota_, 256ull << 20) : nullptr;
    MemoryStorage storage_{quota_, false, shelf_};
};

INSTANTIATE_TEST_SUITE_P(All, MemoryLimit, testing::Bool(), [](const auto& info) {
    return info.param ? "OnAShelf" : "OfTheProcessAlone";
});

TEST(QuotaTest, ReadersLoseNothingWhereOthersCanGive) {
    const auto quota = Quota::of_memory(100);
    std::vector<bool> reclaimed;
    std::uint64_t free = 0;
    const auto handle = quota->add_reclaim([&](std::uint64_t, bool needed) {
        reclaimed.push_back(needed);
        quota->give(std::exchange(free, 0));
    });
    EXPECT_THROW(quota->take(101), NoRoomError);
    EXPECT_THROW(quota->check(101), NoRoomError);
    EXPECT_TRUE(reclaimed.empty()) << "nothing helps";
    quota->take(90);
    free = 40;
    quota->take(30);
    EXPECT_EQ(reclaimed, std::vector({false}));
    free = 40;
    quota->check(30);
    EXPECT_EQ(reclaimed, std::vector({false, false}));
    EXPECT_THROW(quota->take(80), NoRoomError);
    EXPECT_EQ(reclaimed, std::vector({false, false, false, true}));
}

TEST_P(MemoryLimit, RefusesNewValuesAndTakesThoseThatReplace) {
    constexpr std::uint64_t size = 1 << 20;
    const std::uint64_t count = fill(size);
    EXPECT_GE(count, 58u);  // of 64, four of which are kept for replacing
    EXPECT_LE(count, 60u);
    const std::string text = text_of([&] { storage_.receive("one more", size); });
    EXPECT_NE(text.find("no room for 1048576 bytes: values take "), std::string::npos) << text;
    EXPECT_NE(text.find(" of 67108864 bytes of memory"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("; 4194304 are kept for replacing values; raise it")) << text;
    EXPECT_NE(storage_.find("new/0"), nullptr);
    for (int round = 0; round < 3; ++round) {
        for (std::uint64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(put("new/" + std::to_string(i), size)) << round << ", " << i;
            ASSERT_LE(quota_->used(), kLimit);
        }
    }
    EXPECT_FALSE(put("one more", size));
    storage_.remove("new/0");
    EXPECT_TRUE(put("one more", size));
    EXPECT_EQ(storage_.memory().values, count);
    EXPECT_EQ(storage_.memory().bytes, count * size);
    EXPECT_EQ(storage_.memory().limit, kLimit);
}

TEST_P(MemoryLimit, AReplacedValueCountsUntilNobodyReadsIt) {
    constexpr std::uint64_t size = 4'000'000;  // the room for replacing is for one
    fill(size);
    const auto read = storage_.find("new/0");
    EXPECT_TRUE(put("new/0", size));
    EXPECT_FALSE(put("new/0", size));
    EXPECT_FALSE(put("new/1", size));
    EXPECT_EQ(read->size(), size);
    const_cast<std::shared_ptr<const Region>&>(read).reset();
    EXPECT_TRUE(put("new/1", size));
}

TEST_P(MemoryLimit, KeysAndEntriesCount) {
    const std::uint64_t count = fill(0);
    EXPECT_GT(count, 50'000u);
    EXPECT_LT(count, kLimit / 512);
    EXPECT_EQ(storage_.memory().bytes, 0u);
    EXPECT_GT(storage_.memory().used, kLimit / 16 * 15 - 2000);
    storage_.remove("new/0");
    EXPECT_TRUE(put("other", 0));
}

TEST_P(MemoryLimit, OfValuesThatArriveWhatHasCome) {
    const auto first = storage_.receive("a", 40 << 20);
    const auto second = storage_.receive("b", 40 << 20);  // announced is not taken
    first->expect(40 << 20);
    EXPECT_EQ(error_of([&] { second->expect(40 << 20); }), ErrorKind::storage);
    EXPECT_TRUE(first->commit(true));
    EXPECT_LE(quota_->used(), kLimit);
}

TEST_P(MemoryLimit, WritersCannotPassItTogether) {
    std::atomic<std::uint64_t> most = 0;
    std::vector<std::thread> writers;
    for (unsigned writer = 0; writer < 4; ++writer) {
        writers.emplace_back([&, writer] {
            std::minstd_rand random(writer + 1);
            for (int i = 0; i < 400; ++i) {
                const std::string key =
                    std::to_string(random() % 60) + "/" + std::to_string(writer);
                if (random() % 4 == 0) {
                    storage_.remove(key);
                } else {
                    put(key, random() % (2 << 20));
                }
                const std::uint64_t taken = quota_->taken();
                std::uint64_t before = most;
                while (before < taken && !most.compare_exchange_weak(before, taken)) {
                }
            }
        });
    }
    for (std::thread& writer : writers) {
        writer.join();
    }
    EXPECT_LE(most, kLimit);
    EXPECT_GT(most, kLimit / 2);
    EXPECT_LE(storage_.memory().used, kLimit);
}

TEST_P(MemoryLimit, ScratchSpacesAreWithinIt) {
    Spaces spaces(quota_, GetParam());
    const std::string name(32, '1');
    spaces.begin(name, 1ull << 40, 1h);
    const auto space = spaces.find(name);
    ASSERT_TRUE(put(*space, "a", 30 << 20));
    ASSERT_TRUE(put("a", 20 << 20));
    EXPECT_FALSE(put("b", 20 << 20));
    EXPECT_FALSE(put(*space, "b", 20 << 20));
    EXPECT_EQ(spaces.counts().at(0).bytes, 30u << 20);
    EXPECT_LE(quota_->used(), kLimit);
    space->remove("a");
    EXPECT_TRUE(put("b", 20 << 20));
}

// ---- what arenas do not give back ----

TEST(MemoryLimitOfArenas, WhatLiesFreeBetweenValuesCounts) {
    const auto quota = Quota::of_memory(kLimit);
    MemoryStorage storage(quota, false, Shelf::make({.bound = quota}));
    MemoryStorage other(quota, false, nullptr);
    for (int i = 0; i < 900; ++i) {
        storage.receive(std::to_string(i), 60'000)->commit(false);
    }
    for (int i = 0; i < 900; ++i) {
        if (i % 30 != 0) {
            storage.remove(std::to_string(i));
        }
    }
    EXPECT_LT(quota->taken(), 4u << 20);
    EXPECT_GT(quota->used(), 50u << 20);  // the arena's pages are there still
    const std::string text = text_of([&] { other.receive("a", 20 << 20)->commit(false); });
    EXPECT_NE(text.find(" lie free between them"), std::string::npos) << text;
    for (int i = 0; i < 600; ++i) {  // but values have it that fit
        ASSERT_TRUE(storage.receive("again/" + std::to_string(i), 60'000)->commit(false));
    }
    EXPECT_LE(quota->used(), kLimit);
}

TEST(MemoryLimitOfArenas, ThoseThatAreEmptyGoForWhoNeedsRoom) {
    const auto quota = Quota::of_memory(kLimit);
    MemoryStorage storage(quota, false, Shelf::make({.keep_bytes = 1ull << 30, .bound = quota}));
    MemoryStorage other(quota, false, nullptr);
    storage.receive("a", 50 << 20)->commit(false);
    storage.remove("a");
    EXPECT_GT(quota->used(), 50u << 20);
    EXPECT_TRUE(other.receive("a", 50 << 20)->commit(false));
    EXPECT_LT(quota->used(), 51u << 20);
}

TEST(MemoryLimitOfArenas, NeverTouchMoreThanIt) {
    const auto quota = Quota::of_memory(kLimit);
    const auto shelf = Shelf::make({.bound = quota});
    MemoryStorage storage(quota, false, shelf);
    std::minstd_rand random(7);
    std::uint64_t refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string key = std::to_string(random() % 500);
        if (random() % 3 == 0) {
            storage.remove(key);
            continue;
        }
        // Small and large in turn, so that what the one leaves does not fit the other.
        const std::uint64_t size = random() % ((i / 2000) % 2 == 0 ? 6000 : 3'000'000);
        try {
            storage.receive(key, size)->commit(false);
        } catch (const NoRoomError&) {
            ++refused;
        }
        ASSERT_LE(quota->used(), kLimit) << i;
    }
    EXPECT_GT(refused, 0u);
    EXPECT_GT(storage.memory().bytes, kLimit / 3);
}

TEST(MemoryLimitOfArenas, WhatIsAnnouncedAndDoesNotComeTakesNothing) {
    const auto quota = Quota::of_memory(kLimit);
    MemoryStorage storage(quota, false, Shelf::make({.bound = quota}));
    storage.receive("a", 5000)->commit(false);
    const std::uint64_t before = quota->used();
    for (int i = 0; i < 20; ++i) {
        const auto incoming = storage.receive("b", 20 << 20);
        incoming->expect(1 << 20);
        incoming->data()[(10 << 20) + i] = std::byte{1};  // one page of it
    }
    EXPECT_GE(quota->used(), before);
    EXPECT_LT(quota->used(), before + (4 << 20));  // a huge page, at the most
    EXPECT_TRUE(storage.receive("c", 50 << 20)->commit(false));
}

// The memory that the kernel has for a shelf's arenas.
std::uint64_t blocks_of(const Shelf& shelf) {
    std::uint64_t bytes = 0;
    for (std::uint32_t number = 1; number < 100; ++number) {
        if (const auto arena = shelf.arena(number); arena.descriptor) {
            struct stat about{};
            EXPECT_EQ(fstat(arena.descriptor.get(), &about), 0);
            bytes += static_cast<std::uint64_t>(about.st_blocks) * 512;
        }
    }
    return bytes;
}

void store(Storage& storage, const std::string& key, std::uint64_t size) {
    const auto incoming = storage.receive(key, size);
    incoming->expect(size);
    std::memset(incoming->data(), 1, size);
    incoming->commit(false);
}

TEST(MemoryLimitOfArenas, IdlePagesCountOnceTheyAreMeantForAValue) {
    const auto quota = Quota::of_memory(kLimit);
    const auto shelf = Shelf::make({.bound = quota});
    MemoryStorage storage(quota, false, shelf);
    store(storage, "kept", 35 << 20);
    store(storage, "old", 20 << 20);
    storage.remove("old");
    const std::uint64_t before = quota->used();
    auto first = storage.receive("a", 20 << 20);
    EXPECT_GE(quota->used(), before);
    EXPECT_LE(quota->used(), before + 1000);
    EXPECT_EQ(error_of([&] { store(storage, "b", 20 << 20); }), ErrorKind::storage);
    first->expect(20 << 20);
    EXPECT_LE(quota->used(), before + 1000);
    std::memset(first->data(), 1, 20 << 20);
    EXPECT_TRUE(first->commit(false));
    EXPECT_EQ(error_of([&] { store(storage, "b", 20 << 20); }), ErrorKind::storage);
    EXPECT_LE(blocks_of(*shelf), quota->used());
    EXPECT_LE(quota->used(), kLimit);
    storage.remove("a");
    storage.remove("kept");
    EXPECT_EQ(quota->used(), 0u);
}

TEST(MemoryLimitOfArenas, OfAValueThatIsPartlyOnIdlePages) {
    const auto quota = Quota::of_memory(kLimit);
    const auto shelf = Shelf::make({.bound = quota});
    MemoryStorage storage(quota, false, shelf);
    store(storage, "kept", 35 << 20);
    store(storage, "old", 10 << 20);
    storage.remove("old");
    auto first = storage.receive("a", 20 << 20);  // the first half of them
    auto other = storage.receive("b", 5 << 20);
    for (int i = 0; i < 5; ++i) {
        first->expect(2 << 20);
        std::memset(first->data() + (18 << 20) - (i * (2 << 20)), 1, 2 << 20);
        EXPECT_LE(blocks_of(*shelf), quota->used()) << i;
    }
    EXPECT_EQ(error_of([&] { other->expect(5 << 20); }), ErrorKind::storage);
    first->expect(10 << 20);
    first.reset();
    EXPECT_LE(blocks_of(*shelf), quota->used());
    EXPECT_LE(quota->used(), kLimit);
    other->expect(5 << 20);
}

TEST(MemoryLimitOfArenas, WritersThatGiveUpCannotPassItTogether) {
    const auto quota = Quota::of_memory(kLimit);
    const auto shelf = Shelf::make({.bound = quota});
    MemoryStorage storage(quota, false, shelf);
    std::vector<std::thread> writers;
    for (unsigned writer = 0; writer < 4; ++writer) {
        writers.emplace_back([&, writer] {
            std::minstd_rand random(writer + 1);
            for (int i = 0; i < 200; ++i) {
                const std::string key = std::to_string(random() % 12);
                const std::uint64_t size = random() % 2 == 0 ? random() % (8 << 20) : 5000;
                try {
                    const auto incoming = storage.receive(key, size);
                    std::uint64_t come = random() % 3 == 0 ? random() % (size + 1) : size;
                    for (std::uint64_t at = 0; at < come;) {
                        const std::uint64_t part = std::min<std::uint64_t>(come - at, 1 << 20);
                        incoming->expect(part);
                        std::memset(incoming->data() + at, 1, part);
                        at += part;
                    }
                    if (come == size) {
                        incoming->commit(false);
                    }
                } catch (const NoRoomError&) {
                    storage.remove(std::to_string(random() % 12));
                }
            }
        });
    }
    for (std::thread& writer : writers) {
        writer.join();
    }
    EXPECT_LE(quota->used(), kLimit);
    EXPECT_LE(blocks_of(*shelf), quota->used());
}

// ---- what others keep ----

// The server's memory is given back only once nobody has it any more, and counts until then.
enum class Way { descriptor, mapping, path, child };
std::string name_of(Way way) {
    switch (way) {
        case Way::descriptor:
            return "Open";
        case Way::mapping:
            return "Mapped";
        case Way::path:
            return "OpenAsAPath";
        default:
            return "InAForkedChild";
    }
}

class KeptByOthers : public testing::TestWithParam<Way> {
  protected:
    // Has the arena as `way` says, until the result goes.
    std::shared_ptr<void> keep(const Shelf& shelf, std::uint32_t number) {
        auto file = std::make_shared<Fd>(std::move(shelf.arena(number).descriptor));
        if (GetParam() == Way::descriptor) {
            return file;
        }
        if (GetParam() == Way::path) {
            const std::string path = "/proc/self/fd/" + std::to_string(file->get());
            return std::make_shared<Fd>(open(path.c_str(), O_PATH | O_CLOEXEC));
        }
        void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file->get(), 0);
        const std::shared_ptr<void> mapped(memory, [](void* at) { munmap(at, 4096); });
        if (GetParam() == Way::mapping) {
            return mapped;
        }
        const pid_t child = fork();
        if (child == 0) {
            pause();
        }
        return {nullptr, [child](void*) {
                    kill(child, SIGKILL);
                    waitpid(child, nullptr, 0);
                }};
    }

    const std::shared_ptr<Quota> quota_ = Quota::of_memory(kLimit);
};

INSTANTIATE_TEST_SUITE_P(All, KeptByOthers,
                         testing::Values(Way::descriptor, Way::mapping, Way::path, Way::child),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(KeptByOthers, CountsWhereItsShelfIsGone) {
    std::shared_ptr<void> kept;
    {
        const auto shelf = Shelf::make({.bound = quota_});
        MemoryStorage storage(quota_, false, shelf);
        store(storage, "a", 20 << 20);
        kept = keep(*shelf, 1);
    }
    EXPECT_GE(quota_->used(), 20u << 20);
    MemoryStorage other(quota_, false, nullptr);
    EXPECT_EQ(error_of([&] { store(other, "a", 45 << 20); }), ErrorKind::storage);
    kept.reset();
    EXPECT_EQ(quota_->used(), 0u);
    store(other, "a", 45 << 20);
}

TEST_P(KeptByOthers, NeverPassesTheLimit) {
    const auto shelf = Shelf::make({.keep_bytes = 0, .bound = quota_});
    MemoryStorage storage(quota_, false, shelf);
    std::vector<std::shared_ptr<void>> kept;
    int rounds = 0;
    for (std::uint32_t number = 1; rounds < 12; ++rounds) {
        try {
            store(storage, "a", (10 + rounds % 3) << 20);
        } catch (const NoRoomError&) {
            break;
        }
        for (; shelf->arena(number).descriptor; ++number) {
            kept.push_back(keep(*shelf, number));
        }
        storage.remove("a");
        // From when a thread that makes huge pages of it has let go.
        EXPECT_TRUE(eventually([&] { return quota_->used() >= 10u << 20; })) << rounds;
        ASSERT_LE(quota_->used(), kLimit);
    }
    // What they have by a descriptor or mapping is used again.
    EXPECT_TRUE(rounds == 12 || GetParam() == Way::path) << rounds;
    kept.clear();
    // The kernel tells of the end of a file a little later.
    EXPECT_TRUE(eventually([&] {
        shelf->give_back();
        return quota_->used() == 0;
    }));
}

// ---- memory of the process alone ----

TEST(MemoryLimitOfTheProcess, RecycledMemoryCountsInFull) {
    const auto quota = Quota::of_memory(kLimit);
    MemoryStorage storage(quota, false, nullptr);
    constexpr std::uint64_t kSize = 1'013 * 4096;  // which no other test has
    store(storage, "a", kSize);
    storage.remove("a");
    auto incoming = storage.receive("b", kSize - 100'000);
    EXPECT_GE(quota->used(), kSize);  // it is there, before any of it comes
    incoming->expect(kSize - 100'000);
    EXPECT_LE(quota->used(), kSize + 1000);
    incoming->commit(false);
    EXPECT_GE(quota->used(), kSize);
    EXPECT_LE(quota->used(), kSize + 1000);
}

TEST(MemoryLimitOfTheProcess, AStoredValueHasLittleMoreThanItsBytes) {
    const auto quota = Quota::of_memory(kLimit);
    MemoryStorage storage(quota, false, nullptr);
    store(storage, "a", 2 << 20);
    storage.remove("a");
    store(storage, "b", 270'000);
    EXPECT_LT(quota->used(), 310'000u);
}

TEST(MemoryLimitOfArenas, LeavesNothingBehind) {
    const auto quota = Quota::of_memory(kLimit);
    {
        MemoryStorage storage(quota, false, Shelf::make({.bound = quota}));
        for (int i = 0; i < 100; ++i) {
            storage.receive(std::to_string(i), 10'000 * (i % 7))->commit(false);
        }
        storage.remove("3");
    }
    EXPECT_EQ(quota->used(), 0u);
}

}  // namespace
}  // namespace ucxstore::test

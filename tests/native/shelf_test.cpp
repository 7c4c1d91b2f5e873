// A shelf by itself: for how long readers believe what they find, what they count, how it ends, and
// what it takes.
#include "shared/shelf.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "cache/cache_shelf.hpp"
#include "storage/memory.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

std::shared_ptr<Region> value_on(Shelf& shelf, const std::string& key, std::uint64_t size,
                                 std::shared_ptr<void> keeps = nullptr) {
    auto value = shelf.allocate(key, size, std::move(keeps));
    std::memset(value->data(), 7, size);
    value->set_version(1);
    return value;
}

// A reader in this process, which maps what another one would.
class Reader {
  public:
    explicit Reader(Shelf& shelf) : shelf_(shelf), table_(shelf.add_reader()) {
        auto descriptors = table_->take_descriptors();
        void* const memory = mmap(nullptr, kFamilyBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                  descriptors.table.get(), 0);
        memory_ = static_cast<std::byte*>(memory);
        pins_.emplace(std::move(descriptors));
    }
    ~Reader() {
        munmap(memory_, kFamilyBytes);
        for (const auto& [number, arena] : arenas_) {
            munmap(const_cast<std::byte*>(arena), kMapped);
        }
    }

    // Pinned for as long as the result is not given back; nullptr where nothing is found.
    std::atomic<Place>* find(const std::string& key) {
        if (pins_->ended()) {
            return nullptr;
        }
        const IndexReader index(shelf_.index().descriptor);
        std::uint32_t unknown = 0;
        std::atomic<Place>* const pin = pins_->take();
        const auto entry = index.find(
            key, *pin,
            [this](Place place, std::uint64_t) -> const std::byte* {
                auto& arena = arenas_[arena_of(place)];
                if (arena == nullptr) {
                    const Fd file = shelf_.arena(arena_of(place)).descriptor;
                    arena = static_cast<const std::byte*>(
                        mmap(nullptr, kMapped, PROT_READ, MAP_SHARED, file.get(), 0));
                }
                return arena + offset_of(place);
            },
            unknown);
        if (!entry) {
            pins_->give(pin);
            return nullptr;
        }
        return pin;
    }
    bool finds(const std::string& key) {
        std::atomic<Place>* const pin = find(key);
        if (pin == nullptr) {
            return false;
        }
        pins_->note_use(pin->load());
        pins_->give(pin);
        return true;
    }

    Pins& pins() { return *pins_; }
    // Of the process itself, not of a child.
    auto& pins_in_memory() {
        return reinterpret_cast<PinTableMemory*>(memory_ + table_offset(0))->pins;
    }
    auto& uses_in_memory() { return reinterpret_cast<Uses*>(memory_ + kUsesOffset)->counts; }

  private:
    // As large as any arena here; what lies beyond is not touched.
    static constexpr std::size_t kMapped = 64 << 20;

    Shelf& shelf_;
    std::shared_ptr<PinTable> table_;
    std::optional<Pins> pins_;
    std::byte* memory_;
    std::map<std::uint32_t, const std::byte*> arenas_;
};

std::uint64_t now() {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

TEST(Shelf, IsBelievedForAsLongAsItSays) {
    const auto shelf = Shelf::make();
    Reader reader(*shelf);
    const auto value = value_on(*shelf, "a", 1000);
    shelf->publish(*value, now() + 1'000'000'000'000);
    EXPECT_TRUE(reader.finds("a"));
    shelf->publish(*value, now());
    EXPECT_FALSE(reader.finds("a"));
    shelf->publish(*value, 0);
    EXPECT_FALSE(reader.finds("a"));
    shelf->publish(*value, now() + 20'000'000);
    EXPECT_TRUE(eventually([&] { return !reader.finds("a"); }));
    shelf->publish(*value);
    EXPECT_TRUE(reader.finds("a"));
    // What was not believed is not pinned, either.
    for (const auto& pin : reader.pins_in_memory()) {
        ASSERT_EQ(pin.load(), 0u);
    }
}

TEST(Shelf, StaysBelievedWhereTheIndexGrows) {
    const auto shelf = Shelf::make();
    Reader reader(*shelf);
    const auto old = value_on(*shelf, "old", 10);
    const auto fresh = value_on(*shelf, "fresh", 10);
    shelf->publish(*old, 1);
    shelf->publish(*fresh, now() + 1'000'000'000'000);
    std::vector<std::shared_ptr<Region>> others;
    for (int i = 0; i < 3000; ++i) {
        others.push_back(value_on(*shelf, std::to_string(i), 10));
        shelf->publish(*others.back());
    }
    EXPECT_FALSE(reader.finds("old"));
    EXPECT_TRUE(reader.finds("fresh"));
}

TEST(Shelf, ReadersFindNothingOnceItHasEnded) {
    const auto shelf = Shelf::make();
    Reader reader(*shelf);
    Reader other(*shelf);
    auto value = value_on(*shelf, "a", 1000);
    shelf->publish(*value);
    std::atomic<Place>* const pin = reader.find("a");
    ASSERT_NE(pin, nullptr);
    std::vector<std::uint32_t> told;
    const auto watch = shelf->watch_drops([&](std::uint32_t arena) { told.push_back(arena); });
    shelf->end();
    EXPECT_FALSE(reader.finds("a"));
    EXPECT_FALSE(other.finds("a"));
    EXPECT_EQ(shelf->arena_with(*value), std::nullopt);
    EXPECT_EQ(error_of([&] { shelf->add_reader(); }), ErrorKind::scratch_ended);
    EXPECT_EQ(told, std::vector<std::uint32_t>{Shelf::kAllArenas});
    value.reset();
    shelf->sweep();
    EXPECT_GT(shelf->waiting(), 0u);
    EXPECT_EQ(shelf->counts().arenas, 1u);
    reader.pins().give(pin);
    shelf->sweep();
    EXPECT_EQ(shelf->waiting(), 0u);
    EXPECT_EQ(shelf->counts().arena_bytes_used, 0u);  // the reader still has the arena mapped
}

TEST(Shelf, KeepsWhatBelongsToAValueUntilItIsRead) {
    const auto shelf = Shelf::make();
    Reader reader(*shelf);
    std::weak_ptr<int> alive;
    {
        auto keeps = std::make_shared<int>(1);
        alive = keeps;
        auto value = value_on(*shelf, "a", 1000, std::move(keeps));
        shelf->publish(*value);
        std::atomic<Place>* const pin = reader.find("a");
        ASSERT_NE(pin, nullptr);
        shelf->withdraw("a");
        value.reset();
        shelf->sweep();
        EXPECT_FALSE(alive.expired());
        reader.pins().give(pin);
        shelf->sweep();
        EXPECT_TRUE(alive.expired());
        keeps = std::make_shared<int>(2);
        alive = keeps;
        value = value_on(*shelf, "b", 1000, std::move(keeps));
    }
    EXPECT_TRUE(alive.expired()) << "and of one that was never shown";
}

TEST(Shelf, TellsItsOwnValuesFromOthers) {
    const auto shelf = Shelf::make();
    const auto other = Shelf::make();
    const auto ours = value_on(*shelf, "a", 10);
    const auto theirs = value_on(*other, "a", 10);
    const auto plain = allocate_region(10);
    EXPECT_TRUE(shelf->holds(*ours));
    EXPECT_FALSE(shelf->holds(*theirs));
    EXPECT_FALSE(shelf->holds(*plain));
    EXPECT_EQ(Shelf::of(*ours), shelf);
    EXPECT_EQ(Shelf::of(*theirs), other);
    EXPECT_EQ(Shelf::of(*plain), nullptr);
    Reader reader(*shelf);
    shelf->publish(*ours);
    shelf->withdraw(*theirs);
    shelf->withdraw(*plain);
    EXPECT_TRUE(reader.finds("a"));
    shelf->withdraw(*ours);
    EXPECT_FALSE(reader.finds("a"));
    EXPECT_GE(Shelf::capacity("a", 10), 10u);
}

TEST(Shelf, CountsUsesWhereItIsAskedTo) {
    const auto shelf = Shelf::make({.counts_uses = true});
    Reader reader(*shelf);
    Reader other(*shelf);
    const auto value = value_on(*shelf, "a", 1000);
    const auto unread = value_on(*shelf, "b", 100'000);
    shelf->publish(*value);
    shelf->publish(*unread);
    EXPECT_EQ(shelf->take_uses(*value), 0u);
    EXPECT_TRUE(reader.finds("a"));
    EXPECT_TRUE(other.finds("a"));
    EXPECT_EQ(shelf->take_uses(*value), 2u);
    EXPECT_EQ(shelf->take_uses(*value), 0u);
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(reader.finds("a"));
    }
    EXPECT_EQ(shelf->take_uses(*value), kMostUses);
    EXPECT_EQ(shelf->take_uses(*unread), 0u);
    const auto silent = Shelf::make();
    Reader uncounted(*silent);
    const auto plain = value_on(*silent, "a", 10);
    silent->publish(*plain);
    EXPECT_TRUE(uncounted.finds("a"));
    EXPECT_EQ(silent->take_uses(*plain), 0u);
}

TEST(Arenas, TakeNoMoreThanTheirLimit) {
    constexpr std::uint64_t kMost = 16ull << 20;
    std::mt19937 random(1);
    Arenas arenas(nullptr, Arenas::kHugePage, kMost);
    std::vector<Block> blocks;
    std::uint64_t refused = 0;
    for (int i = 0; i < 5000; ++i) {
        if (!blocks.empty() && random() % 5 < 2) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            arenas.give(blocks.back());
            blocks.pop_back();
        } else {
            const std::uint64_t size = 1 + random() % (random() % 50 == 0 ? 3'000'000 : 60'000);
            try {
                blocks.push_back(arenas.take(size));
                std::memset(blocks.back().data, 1, size);
            } catch (const Error& error) {
                ASSERT_EQ(error.kind(), ErrorKind::memory);
                ++refused;
            }
        }
        const Arenas::Usage usage = arenas.usage();
        ASSERT_LE(usage.touched, kMost);
        ASSERT_LE(usage.taken, usage.touched);
    }
    EXPECT_GT(refused, 0u);
    for (const Block& block : blocks) {
        arenas.give(block);
    }
    EXPECT_EQ(arenas.usage().touched, 0u);
    EXPECT_EQ(arenas.usage().arenas, 0u);
    EXPECT_EQ(error_of([&] { arenas.take(kMost + 1); }), ErrorKind::memory);
}

// ---- a quota of what is on a shelf ----

TEST(ShelfQuota, CountsWhatIsReadUntilItIsLetGo) {
    const auto shelf = Shelf::make();
    const auto quota = std::make_shared<Quota>(1000);
    MemoryStorage storage(quota, false, shelf);
    Reader reader(*shelf);
    const auto put = [&](const std::string& key, std::uint64_t size) {
        storage.receive(key, size)->commit(false);
    };
    put("a", 600);
    std::atomic<Place>* const pin = reader.find("a");
    ASSERT_NE(pin, nullptr);
    storage.remove("a");
    EXPECT_EQ(storage.held(), 600u);
    EXPECT_EQ(error_of([&] { put("b", 600); }), ErrorKind::storage);
    reader.pins().give(pin);
    put("b", 600);  // nobody had to sweep for it
    EXPECT_EQ(storage.held(), 600u);
    put("b", 300);
    shelf->sweep();
    EXPECT_EQ(storage.held(), 300u);
    for (int i = 0; i < 100; ++i) {
        put("b", 400);
        put("b", 500);
    }
    shelf->sweep();
    EXPECT_EQ(storage.held(), 500u);
}

TEST(ShelfQuota, OfOthersIsReclaimed) {
    const auto room = std::make_shared<Quota>(1000);
    const auto shelf = Shelf::make();
    const auto other = Shelf::make();
    MemoryStorage one(std::make_shared<Quota>(1000, "one", room), false, shelf);
    MemoryStorage two(std::make_shared<Quota>(1000, "two", room), false, other);
    Reader reader(*shelf);  // so that what is removed waits until somebody looks
    one.receive("a", 900)->commit(false);
    one.remove("a");
    two.receive("a", 900)->commit(false);
    EXPECT_EQ(room->taken(), 900u);
}

TEST(ShelfQuota, AValueThatIsNotOnTheShelfIsNotFoundThere) {
    const auto shelf = Shelf::make({.first_bytes = Arenas::kHugePage, .most_bytes = 600'000});
    MemoryStorage storage(std::make_shared<Quota>(1ull << 30), false, shelf);
    Reader reader(*shelf);
    storage.receive("a", 5000)->commit(false);
    EXPECT_TRUE(reader.finds("a"));
    storage.receive("a", 1'000'000)->commit(false);
    EXPECT_FALSE(reader.finds("a"));
    EXPECT_EQ(storage.find("a")->size(), 1'000'000u);
}

// ---- a cache whose values others read ----

class ReadCache : public testing::Test {
  protected:
    static constexpr std::uint64_t kCapacity = 1 << 20;

    void put(const std::string& key, std::uint64_t size) {
        auto value = value_on(*shelf, key, size);
        cache.put(key, value);
        if (cache.peek(key) != nullptr) {
            shelf->publish(*value);
        }
        value.reset();
        ASSERT_LE(cache.bytes(), kCapacity);
    }

    const std::shared_ptr<Shelf> shelf = make_cache_shelf(kCapacity);
    Cache cache{kCapacity, Cache::Clock::now, "a test's cache", readers_of(shelf)};
    Reader reader{*shelf};
};

TEST_F(ReadCache, ShowsWhatItHas) {
    for (int i = 0; i < 200; ++i) {
        put(std::to_string(i), 20'000);
        ASSERT_NE(cache.peek(std::to_string(i)), nullptr);
    }
    for (int i = 0; i < 200; ++i) {
        const std::string key = std::to_string(i);
        EXPECT_EQ(reader.finds(key), cache.peek(key) != nullptr) << key;
    }
    EXPECT_GT(cache.size(), 35u);
    cache.remove("199");
    EXPECT_FALSE(reader.finds("199"));
    cache.clear();
    EXPECT_FALSE(reader.finds("198"));
    shelf->sweep();
    EXPECT_EQ(shelf->counts().arena_bytes_used, 0u);  // the reader still has the arena mapped
}

TEST_F(ReadCache, KeepsWhatReadersReadOften) {
    put("read", 20'000);
    put("unread", 20'000);
    for (int i = 0; i < 500; ++i) {
        put(std::to_string(i), 20'000);
        ASSERT_TRUE(reader.finds("read")) << i;
    }
    EXPECT_FALSE(reader.finds("unread"));
}

TEST_F(ReadCache, CountsWhatIsReadAfterItsEviction) {
    put("pinned", 600'000);
    std::atomic<Place>* const pin = reader.find("pinned");
    ASSERT_NE(pin, nullptr);
    cache.remove("pinned");
    for (int i = 0; i < 200; ++i) {
        put(std::to_string(i), 20'000);
        ASSERT_NE(cache.peek(std::to_string(i)), nullptr) << "there is room beside it";
    }
    EXPECT_GE(cache.bytes(), 600'000u);
    EXPECT_LT(cache.size(), 25u);
    put("large", 500'000);
    EXPECT_EQ(cache.peek("large"), nullptr) << "there is no room for it";
    reader.pins().give(pin);
    put("large", 500'000);
    EXPECT_NE(cache.peek("large"), nullptr);
}

TEST_F(ReadCache, NobodyCanMakeItGrowOrKeepNothing) {
    static constexpr std::uint64_t kSizes[] = {100, 3000, 20'000, 40'000};
    std::mt19937_64 random(3);
    for (int round = 0; round < 30; ++round) {
        for (auto& uses : reader.uses_in_memory()) {
            uses.store(round % 3 == 0 ? 255 : static_cast<std::uint8_t>(random()));
        }
        for (int i = 0; i < 40; ++i) {
            const std::string key = std::to_string(round * 40 + i);
            put(key, kSizes[random() % 4]);
            ASSERT_NE(cache.peek(key), nullptr);
        }
    }
    // Pins of what is there, of what is not, and of nonsense.
    for (int round = 0; round < 30; ++round) {
        for (auto& pin : reader.pins_in_memory()) {
            pin.store(round % 2 == 0 ? place_of(1, (random() % 400) * 4096) : random());
        }
        for (int i = 0; i < 40; ++i) {
            put("p" + std::to_string(round * 40 + i), kSizes[random() % 4]);
        }
    }
    EXPECT_LE(shelf->counts().arena_bytes_used, kCapacity);
    for (auto& pin : reader.pins_in_memory()) {
        pin.store(0);
    }
    put("last", 500'000);
    Reader other(*shelf);  // the first one may have lost its pins
    EXPECT_TRUE(other.finds("last"));
}

}  // namespace
}  // namespace ucxstore::test

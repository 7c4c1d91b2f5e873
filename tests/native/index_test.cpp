#include "shared/index.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/boot_clock.hpp"
#include "base/status.hpp"
#include "rooms.hpp"
#include "shared/arenas.hpp"
#include "shared/pins.hpp"
#include "shared/retired_blocks.hpp"

namespace ucxstore::test {
namespace {

Fd duplicate(int descriptor) { return Fd(dup(descriptor)); }

// Values whose every byte is that of their version, each under a key.
class Keeper {
  public:
    void put(const std::string& key, std::uint64_t version, std::uint64_t size) {
        const Block block = arenas.take(block_bytes(size, key.size()));
        std::memset(block.data, static_cast<int>(version % 251), size);
        std::memcpy(block.data + key_offset(size), key.data(), key.size());
        index.put(key, {.place = place_of(block.arena, block.offset),
                        .size = size,
                        .version = version,
                        .key_bytes = static_cast<std::uint32_t>(key.size())});
        const auto [at, added] = blocks_.try_emplace(key, block);
        if (!added) {
            retired_blocks.retire(std::exchange(at->second, block));
        }
    }
    void remove(const std::string& key) {
        const auto found = blocks_.find(key);
        if (found != blocks_.end()) {
            index.remove(key);
            retired_blocks.retire(found->second);
            blocks_.erase(found);
        }
    }
    const std::byte* bytes_at(Place place) const {
        const auto arena = arenas.arena(arena_of(place));
        return arena == nullptr ? nullptr : arena->data() + offset_of(place);
    }
    std::shared_ptr<PinTable> new_table() {
        auto table = std::make_shared<PinTable>();
        retired_blocks.add(table);
        return table;
    }

    Arenas arenas;
    RetiredBlocks retired_blocks{arenas};
    IndexWriter index{[this](Place place, std::uint64_t) { return bytes_at(place); }, 32};

  private:
    std::map<std::string, Block> blocks_;
};

// A reader in this process, which sees the arenas as the keeper does.
struct Reader {
    explicit Reader(Keeper& keeper)
        : keeper(keeper),
          table(keeper.new_table()),
          pins(table->take_descriptors()),
          index(std::make_unique<IndexReader>(duplicate(keeper.index.descriptor()))) {}

    std::optional<IndexEntry> find(const std::string& key, std::atomic<Place>& pin) {
        std::uint32_t unknown = 0;
        return index->find(
            key, pin, [this](Place place, std::uint64_t) { return keeper.bytes_at(place); },
            unknown);
    }
    std::optional<IndexEntry> find(const std::string& key) {
        std::atomic<Place>* const pin = pins.take();
        const auto entry = find(key, *pin);
        pins.give(pin);
        return entry;
    }

    Keeper& keeper;
    std::shared_ptr<PinTable> table;
    Pins pins;
    std::unique_ptr<IndexReader> index;
};

TEST(Index, HashesAsSipHashDoes) {
    // Vectors of SipHash-1-3 from Rust's library, whose key is 00 01 02 ... 0f.
    const std::uint64_t seed[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    EXPECT_EQ(hash_key(seed, ""), 0xabac0158050fc4dcu);
    EXPECT_EQ(hash_key(seed, std::string_view("\0", 1)), 0xc9f49bf37d57ca93u);
    // As CPython 3.11 and later hash bytes, where PYTHONHASHSEED is 0.
    const std::uint64_t zeros[2] = {0, 0};
    EXPECT_EQ(hash_key(zeros, "a"), 0x407448d2b89b1813u);
    EXPECT_EQ(hash_key(zeros, "group/a"), 0x37f86f9a6fde6dddu);
    EXPECT_EQ(hash_key(zeros, "group/ab"), 0xafe0f05270a914f7u);
    EXPECT_EQ(hash_key(zeros, "group/array/c/0/0"), 0x1ca4deae2da767c9u);
}

TEST(Index, FindsWhatWasPutLast) {
    Keeper keeper;
    Reader reader(keeper);
    EXPECT_EQ(reader.find("a"), std::nullopt);
    keeper.put("a", 5, 100);
    keeper.put("b", 6, 0);
    ASSERT_TRUE(reader.find("a").has_value());
    EXPECT_EQ(reader.find("a")->version, 5u);
    EXPECT_EQ(reader.find("a")->size, 100u);
    EXPECT_EQ(reader.find("b")->size, 0u);
    keeper.put("a", 7, 3);
    EXPECT_EQ(reader.find("a")->version, 7u);
    keeper.remove("a");
    EXPECT_EQ(reader.find("a"), std::nullopt);
    EXPECT_EQ(reader.find("b")->version, 6u);
    EXPECT_EQ(reader.find(""), std::nullopt);
}

TEST(Index, NothingIsFoundOnceItIsNotBelieved) {
    Keeper keeper;
    Reader reader(keeper);
    keeper.put("a", 5, 100);
    keeper.index.believe_until(boot_nanoseconds() + 60'000'000'000);
    EXPECT_TRUE(reader.find("a").has_value());
    keeper.index.believe_until(boot_nanoseconds());
    EXPECT_EQ(reader.find("a"), std::nullopt);
    for (int key = 0; key < 100; ++key) {  // another index
        keeper.put(std::to_string(key), 1, 8);
    }
    Reader later(keeper);
    EXPECT_EQ(later.find("a"), std::nullopt);
    keeper.index.believe_until(IndexEntry::kForEver);
    EXPECT_TRUE(later.find("a").has_value());
}

TEST(Index, DoesAsAMapDoes) {
    Keeper keeper;
    Reader reader(keeper);
    std::map<std::string, std::uint64_t> model;
    std::mt19937 random(1);
    for (std::uint64_t version = 1; version < 20'000; ++version) {
        const std::string key = "group/array/c/" + std::to_string(random() % 500);
        if (random() % 3 == 0) {
            keeper.remove(key);
            model.erase(key);
        } else {
            keeper.put(key, version, random() % 300);
            model[key] = version;
        }
        ASSERT_EQ(keeper.index.size(), model.size());
        if (reader.index->superseded()) {
            reader.index = std::make_unique<IndexReader>(duplicate(keeper.index.descriptor()));
        }
        const std::string asked = "group/array/c/" + std::to_string(random() % 500);
        const auto found = reader.find(asked);
        const auto expected = model.find(asked);
        ASSERT_EQ(found.has_value(), expected != model.end());
        if (found) {
            ASSERT_EQ(found->version, expected->second);
        }
    }
}

TEST(Index, AnOldOneHasNothing) {
    Keeper keeper;
    Reader reader(keeper);
    for (std::uint64_t i = 0; i < 100; ++i) {
        keeper.put(std::to_string(i), i + 1, 10);
    }
    EXPECT_TRUE(reader.index->superseded());
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(reader.find(std::to_string(i)), std::nullopt);
    }
}

TEST(Index, WhatIsPinnedStays) {
    Keeper keeper;
    Reader reader(keeper);
    keeper.put("a", 1, 3'000'000);
    std::atomic<Place>* const pin = reader.pins.take();
    const IndexEntry entry = reader.find("a", *pin).value();
    const std::byte* const bytes = keeper.bytes_at(entry.place);
    for (std::uint64_t version = 2; version < 100; ++version) {
        keeper.put("a", version, 3'000'000);
    }
    keeper.remove("a");
    keeper.retired_blocks.sweep();
    EXPECT_EQ(keeper.retired_blocks.waiting(), Arenas::capacity(block_bytes(3'000'000, 1)));
    for (std::uint64_t i = 0; i < entry.size; ++i) {
        ASSERT_EQ(static_cast<int>(bytes[i]), 1);
    }
    reader.pins.give(pin);
    keeper.retired_blocks.sweep();
    EXPECT_EQ(keeper.retired_blocks.waiting(), 0u);
    EXPECT_EQ(keeper.arenas.usage().taken, 0u);
}

TEST(Index, PinsOfAReaderThatIsGoneEnd) {
    Keeper keeper;
    auto reader = std::make_unique<Reader>(keeper);
    keeper.put("a", 1, 100'000);
    ASSERT_TRUE(reader->find("a", *reader->pins.take()).has_value());
    keeper.remove("a");
    keeper.retired_blocks.sweep();
    EXPECT_GT(keeper.retired_blocks.waiting(), 0u);
    reader.reset();  // and with it the lifeline, as a process that ends
    keeper.retired_blocks.sweep();
    EXPECT_EQ(keeper.retired_blocks.waiting(), 0u);
}

TEST(Index, PinsRunOutAndComeBack) {
    Keeper keeper;
    Reader reader(keeper);
    std::vector<std::atomic<Place>*> all;
    while (auto* const pin = reader.pins.take()) {
        all.push_back(pin);
    }
    EXPECT_EQ(all.size(), kPins);
    reader.pins.give(all.back());
    EXPECT_EQ(reader.pins.take(), all.back());
}

// ---- at once ----

// Reads keys until `stop`, and checks each byte of what it finds. Returns what is wrong.
int read_all(Reader& reader, const std::atomic<bool>& stop, std::atomic<std::uint64_t>& found) {
    std::mt19937 random(static_cast<unsigned>(getpid()) + 1);
    while (!stop) {
        std::atomic<Place>* const pin = reader.pins.take();
        const auto entry = reader.find("key/" + std::to_string(random() % 8), *pin);
        if (entry) {
            const std::byte* const bytes = reader.keeper.bytes_at(entry->place);
            for (std::uint64_t i = 0; i < entry->size; ++i) {
                if (bytes[i] != static_cast<std::byte>(entry->version % 251)) {
                    return 1;
                }
            }
            ++found;
        }
        reader.pins.give(pin);
    }
    return 0;
}

TEST(Index, NobodyReadsATornOrReusedValue) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "it takes the two mappings of a table for different memory";
#endif
    Keeper keeper;
    // So few that the index does not grow: the readers below never ask for another one.
    for (std::uint64_t i = 0; i < 8; ++i) {
        keeper.put("key/" + std::to_string(i), 1, 100);
    }
    std::atomic<bool> stop = false;
    std::atomic<std::uint64_t> found = 0;
    std::atomic<int> wrong = 0;
    std::vector<std::unique_ptr<Reader>> readers;
    for (int i = 0; i < 3; ++i) {
        readers.push_back(std::make_unique<Reader>(keeper));
    }
    std::vector<std::thread> threads;
    for (auto& reader : readers) {
        threads.emplace_back([&] { wrong += read_all(*reader, stop, found); });
    }
    std::mt19937 random(5);
    for (std::uint64_t version = 2; version < 30'000 || found < 1000; ++version) {
        const std::string key = "key/" + std::to_string(random() % 8);
        if (random() % 8 == 0) {
            keeper.remove(key);
        } else {
            keeper.put(key, version, random() % 2 == 0 ? random() % 200 : random() % 40'000);
        }
    }
    stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GE(found, 1000u);
}

}  // namespace
}  // namespace ucxstore::test

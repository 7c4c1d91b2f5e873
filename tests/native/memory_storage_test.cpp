// What every storage must do, whatever it keeps its values in.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "storage/directory.hpp"
#include "storage/memory.hpp"
#include "support.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

enum class Kind { memory, directory };

class StorageTest : public testing::TestWithParam<Kind> {
  protected:
    StorageTest() {
        if (GetParam() == Kind::memory) {
            storage_ = std::make_unique<MemoryStorage>();
        } else {
            storage_ = std::make_unique<DirectoryStorage>(directory_.path() / "root");
        }
    }

    bool put(const std::string& key, const Bytes& value, bool if_absent = false) {
        const auto incoming = storage_->receive(key, value.size());
        incoming->write(0, value);
        return incoming->commit(if_absent);
    }
    bool put(const std::string& key, const std::string& value) { return put(key, to_bytes(value)); }
    std::optional<Bytes> get(const std::string& key) {
        const auto region = storage_->find(key);
        return region == nullptr ? std::nullopt : std::optional(content_of(*region));
    }
    std::vector<std::string> names(const std::string& prefix, bool delimited,
                                   std::size_t page_bytes) {
        std::vector<std::string> names;
        std::string cursor;
        do {
            const Page page = storage_->list(prefix, delimited, cursor, page_bytes);
            names.insert(names.end(), page.names.begin(), page.names.end());
            EXPECT_NE(page.cursor.empty() ? "x" : page.cursor, cursor)
                << "a page that ends where it began";
            cursor = page.cursor;
        } while (!cursor.empty());
        return names;
    }

    TemporaryDirectory directory_;
    std::unique_ptr<Storage> storage_;
};

INSTANTIATE_TEST_SUITE_P(All, StorageTest, testing::Values(Kind::memory, Kind::directory),
                         [](const auto& info) {
                             return info.param == Kind::memory ? "Memory" : "Directory";
                         });

TEST_P(StorageTest, GivesBackWhatWasPut) {
    EXPECT_EQ(get("a"), std::nullopt);
    EXPECT_EQ(storage_->size("a"), std::nullopt);
    // About every threshold between ways to hold a value.
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{4095}, (std::size_t{32} << 10) - 1,
          std::size_t{32} << 10, (std::size_t{1} << 20) - 1, (std::size_t{1} << 20) + 1,
          (std::size_t{3} << 20) + 5}) {
        const std::string key = "values/" + std::to_string(size);
        const Bytes value = pattern(size);
        EXPECT_TRUE(put(key, value));
        EXPECT_EQ(get(key), value) << size;
        EXPECT_EQ(storage_->size(key), size);
    }
}

TEST_P(StorageTest, AReaderKeepsTheValueItHas) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{1} << 20}) {
        const Bytes old_value = pattern(size, 1);
        const Bytes new_value = pattern(size / 2, 2);
        put("k", old_value);
        const auto reader = storage_->find("k");
        put("k", new_value);
        EXPECT_EQ(get("k"), new_value);
        EXPECT_EQ(content_of(*reader), old_value);
        storage_->remove("k");
        EXPECT_EQ(get("k"), std::nullopt);
        EXPECT_EQ(content_of(*reader), old_value);
    }
}

TEST_P(StorageTest, IfAbsentKeepsWhatIsThere) {
    EXPECT_TRUE(put("d/k", to_bytes("first"), true));
    EXPECT_FALSE(put("d/k", to_bytes("second"), true));
    EXPECT_EQ(get("d/k"), to_bytes("first"));
    EXPECT_TRUE(put("d/k", to_bytes("third"), false));
    EXPECT_EQ(get("d/k"), to_bytes("third"));
}

TEST(MemoryStorageTest, HoldsNoMoreThanItsLimit) {
    MemoryStorage storage(1000);
    const auto put = [&](const std::string& key, std::uint64_t size) {
        return storage.receive(key, size)->commit(false);
    };
    put("a", 600);
    EXPECT_EQ(storage.held(), 600U);
    try {
        put("b", 401);
        FAIL() << "a value beyond the limit";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::storage);
        EXPECT_NE(std::string(error.what()).find("600 of 1000 bytes"), std::string::npos);
    }
    EXPECT_EQ(storage.find("b"), nullptr);
    put("b", 400);
    EXPECT_THROW(put("c", 1), Error);
    EXPECT_THROW(put("c", std::numeric_limits<std::uint64_t>::max()), Error);
    put("empty", 0);
    storage.remove("b");
    EXPECT_EQ(storage.held(), 600U);
    put("a", 300);  // both lie in memory until the new one is there
    EXPECT_EQ(storage.held(), 300U);
}

TEST(MemoryStorageTest, WhatArrivesOrIsPinnedCounts) {
    auto storage = std::make_unique<MemoryStorage>(1000);
    auto arriving = storage->receive("a", 600);
    arriving->expect(600);
    EXPECT_THROW(storage->receive("b", 600), Error);
    arriving.reset();
    EXPECT_EQ(storage->held(), 0U);
    storage->receive("a", 600)->commit(false);
    EXPECT_FALSE(storage->receive("a", 400)->commit(true));
    auto reader = storage->find("a");
    remove_prefix(*storage, "");
    EXPECT_EQ(storage->held(), 600U);
    EXPECT_THROW(storage->receive("b", 600), Error);
    reader.reset();
    EXPECT_EQ(storage->held(), 0U);
    storage->receive("a", 600)->commit(false);
    reader = storage->find("a");
    storage.reset();
    EXPECT_EQ(reader->size(), 600U);
}

TEST(MemoryStorageTest, WhatIsAnnouncedIsTakenAsItComes) {
    MemoryStorage storage(1000);
    EXPECT_THROW(storage.receive("a", 1001), Error) << "it never has room";
    auto announced = storage.receive("a", 900);
    announced->expect(100);
    EXPECT_EQ(storage.held(), 100U);
    storage.receive("b", 600)->commit(false);
    EXPECT_EQ(storage.held(), 700U);
    announced->expect(300);
    EXPECT_THROW(announced->expect(1), Error);
    EXPECT_EQ(storage.held(), 1000U);
    announced.reset();
    EXPECT_EQ(storage.held(), 600U);
    auto whole = storage.receive("c", 400);
    whole->expect(150);
    whole->expect(250);
    EXPECT_TRUE(whole->commit(false));
    EXPECT_EQ(storage.held(), 1000U);
}

TEST(MemoryStorageTest, ManyWritersStayWithinTheLimit) {
    MemoryStorage storage(5000);
    std::atomic<int> written = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 25; ++i) {
                try {
                    storage.receive(std::to_string(thread * 25 + i), 100)->commit(false);
                    ++written;
                } catch (const Error&) {
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(written, 50);
    EXPECT_EQ(storage.held(), 5000U);
}

TEST(MemoryStorageTest, AListingHasNobodyWaitForAllOfIt) {
    MemoryStorage storage;
    const auto put = [&](const std::string& key) { storage.receive(key, 0)->commit(false); };
    for (int i = 0; i < 10'000; ++i) {
        put("k" + std::to_string(10'000 + i));
    }
    int written = 0;
    const Page page = storage.list("", false, "", 1 << 20, [&] { put(std::to_string(++written)); });
    EXPECT_GT(written, 10);
    EXPECT_EQ(page.names.size(), 10'000u);
    EXPECT_TRUE(page.cursor.empty());
}

TEST_P(StorageTest, OneOfManyIfAbsentIsWritten) {
    std::atomic<int> written = 0;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 25; ++i) {
                written += put("d/" + std::to_string(i), pattern(100, thread), true) ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(written, 25);
}

TEST_P(StorageTest, RemovesAKeyAndNoOther) {
    put("a/b", "1");
    put("a/c", "2");
    storage_->remove("a/b");
    storage_->remove("a/b");
    storage_->remove("never/was");
    storage_->remove("a");  // leads to keys, and is none
    EXPECT_EQ(get("a/b"), std::nullopt);
    EXPECT_EQ(get("a/c"), to_bytes("2"));
    EXPECT_EQ(get("a"), std::nullopt);
}

TEST_P(StorageTest, RemovesAPrefix) {
    for (const std::string key : {"a/b", "a/c/d", "a-b", "ab", "b/a/c"}) {
        put(key, key);
    }
    EXPECT_EQ(remove_prefix(*storage_, "x/"), 0u);
    EXPECT_EQ(remove_prefix(*storage_, "a/"), 2u);
    EXPECT_EQ(names("", false, 1000), (std::vector<std::string>{"a-b", "ab", "b/a/c"}));
    EXPECT_EQ(remove_prefix(*storage_, ""), 3u);
    EXPECT_TRUE(names("", false, 1000).empty());
}

TEST_P(StorageTest, MeasuresAPrefix) {
    put("a/b", "12");
    put("a/c/d", "345");
    put("ab", "6");
    EXPECT_EQ(measure(*storage_, "a/", false).keys, 2u);
    EXPECT_EQ(measure(*storage_, "a/", false).bytes, 5u);
    EXPECT_EQ(measure(*storage_, "", false).keys, 3u);
    EXPECT_EQ(measure(*storage_, "", false).bytes, 6u);
    EXPECT_EQ(measure(*storage_, "a/", true).keys, 1u);
    EXPECT_EQ(measure(*storage_, "x/", true).keys, 0u);
}

TEST_P(StorageTest, AValueThatIsGivenUpLeavesNoTrace) {
    put("kept/k", "old");
    for (const std::size_t size : {std::size_t{10}, std::size_t{1} << 20}) {
        static_cast<void>(storage_->receive("kept/k", size));
        static_cast<void>(storage_->receive("new/deep/er/k", size));
    }
    EXPECT_EQ(get("kept/k"), to_bytes("old"));
    EXPECT_EQ(names("", false, 1000), std::vector<std::string>{"kept/k"});
    EXPECT_EQ(names("", true, 1000), std::vector<std::string>{"kept"});
}

TEST_P(StorageTest, AValueOnItsWayIsNotListed) {
    const auto incoming = storage_->receive("new/k", 1 << 20);
    EXPECT_TRUE(names("", false, 1000).empty());
    EXPECT_TRUE(names("new/", true, 1000).empty());
    EXPECT_EQ(measure(*storage_, "", false).keys, 0u);
    EXPECT_EQ(get("new/k"), std::nullopt);
}

TEST_P(StorageTest, AnImpossibleSizeIsAnErrorAndLeavesNoTrace) {
    const auto kind = error_of([&] { storage_->receive("new/k", (1ull << 63) - 1); });
    EXPECT_TRUE(kind == ErrorKind::storage || kind == ErrorKind::memory);
    EXPECT_TRUE(names("", true, 1000).empty());
}

// ---------------------------------------------------------------------------------------------
// Listings, against a std::map.

std::vector<std::string> listed(const std::set<std::string>& keys, const std::string& prefix,
                                bool delimited) {
    std::set<std::string> found;
    for (const std::string& key : keys) {
        if (key.starts_with(prefix)) {
            found.insert(
                delimited ? key.substr(prefix.size(), key.find('/', prefix.size()) - prefix.size())
                          : key);
        }
    }
    return {found.begin(), found.end()};
}

// Parts about the byte "/" (0x2f): those before it sort between "a" and "a/b".
std::string random_key(std::mt19937& random) {
    static const char* const kParts[] = {"a",  "b", "a-b", "a.b",       "a0",
                                         "ab", "ü", "€/ü", "zarr.json", "."};
    std::string key;
    for (std::uint32_t parts = 1 + random() % 3; parts > 0; --parts) {
        key += kParts[random() % 9];
        if (parts > 1) {
            key += "/";
        }
    }
    return key;
}

bool is_beneath(const std::string& key, const std::string& other) {
    return key.starts_with(other + "/");
}

TEST_P(StorageTest, ListsWhatAMapWouldHave) {
    for (std::uint32_t seed = 0; seed < 12; ++seed) {
        std::mt19937 random(seed);
        remove_prefix(*storage_, "");
        std::set<std::string> keys;
        for (int i = 0; i < 40; ++i) {
            const std::string key = random_key(random);
            const bool clash = std::ranges::any_of(keys, [&](const std::string& other) {
                return is_beneath(key, other) || is_beneath(other, key);
            });
            // A file system has no "a" beside "a/b".
            if (GetParam() == Kind::memory || !clash) {
                put(key, key);
                keys.insert(key);
            }
        }
        for (const std::string prefix : {"", "a/", "a-b/", "b/a/", "€/", "x/", "a/b/a/"}) {
            for (const std::size_t page : {std::size_t{0}, std::size_t{9}, std::size_t{100'000}}) {
                auto parts = names(prefix, true, page);
                std::ranges::sort(parts);
                ASSERT_EQ(parts, listed(keys, prefix, true)) << prefix << " " << page;
                ASSERT_EQ(names(prefix, false, page), listed(keys, prefix, false))
                    << prefix << " " << page;
            }
        }
        for (const std::string prefix : {"a", "a/b", "b/a-", "€"}) {  // in mid-name
            ASSERT_EQ(names(prefix, false, 9), listed(keys, prefix, false)) << prefix;
        }
    }
}

TEST_P(StorageTest, APageHoldsAsMuchAsItMay) {
    for (int i = 0; i < 100; ++i) {
        put("k" + std::to_string(100 + i), "");
    }
    const Page page = storage_->list("", false, "", 60);
    EXPECT_EQ(page.names.size(), 10u);  // 4 bytes of name and 2 of length each
    EXPECT_FALSE(page.cursor.empty());
    EXPECT_EQ(storage_->list("", false, "", 1).names.size(), 1u);
}

TEST_P(StorageTest, APageGoesOnAfterItsFirstKeyWasRemoved) {
    for (const std::string key : {"a", "b", "c", "d"}) {
        put(key, "");
    }
    for (const bool delimited : {false, true}) {
        put("b", "");
        const Page page = storage_->list("", delimited, "", 1);
        storage_->remove("b");
        EXPECT_EQ(storage_->list("", delimited, page.cursor, 1000).names,
                  (std::vector<std::string>{"c", "d"}));
    }
}

TEST_P(StorageTest, EveryValueIsOfAnotherVersion) {
    std::set<std::uint64_t> seen = {0};
    for (const std::size_t size : {10u, 100'000u}) {
        for (unsigned round = 0; round < 200; ++round) {
            put("k", pattern(size, round));
            const std::uint64_t version = storage_->find("k")->version();
            EXPECT_TRUE(seen.insert(version).second) << "round " << round;
            EXPECT_EQ(storage_->find("k")->version(), version);
        }
    }
    storage_->remove("k");
    put("k", pattern(10));
    EXPECT_TRUE(seen.insert(storage_->find("k")->version()).second);
}

// ---------------------------------------------------------------------------------------------
// Several threads.

// Every value is one byte over and over, so that a mixture of two shows.
bool is_whole(const Region& region) {
    const Bytes bytes = content_of(region);
    return !bytes.empty() &&
           std::ranges::all_of(bytes, [&](std::byte byte) { return byte == bytes.front(); });
}

TEST_P(StorageTest, ReadersAndWritersOfOneKeySeeWholeValues) {
    std::atomic<bool> stop = false;
    std::atomic<int> torn = 0;
    put("d/k", Bytes(1000, std::byte{1}));
    std::vector<std::thread> threads;
    for (int reader = 0; reader < 2; ++reader) {
        threads.emplace_back([&] {
            while (!stop) {
                const auto region = storage_->find("d/k");
                torn += region == nullptr || !is_whole(*region) ? 1 : 0;
            }
        });
    }
    for (int i = 0; i < 200; ++i) {
        put("d/k", Bytes(i % 2 == 0 ? 1000 : 40'000, std::byte(i)));
    }
    stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(torn, 0);
}

TEST_P(StorageTest, WritersAndRemoversOfOneDirectory) {
    constexpr int kThreads = 4;
    constexpr int kRounds = 150;
    std::vector<std::thread> threads;
    std::atomic<int> lost = 0;
    std::mutex mutex;
    std::set<std::string> failures;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            const std::string key = "deep/er/" + std::to_string(thread);
            for (int i = 0; i < kRounds; ++i) {
                try {
                    put(key, Bytes(i % 2 == 0 ? 10 : 40'000, std::byte(i)));
                    lost += storage_->find(key) == nullptr ? 1 : 0;
                    if (i % 3 == 0) {
                        static_cast<void>(storage_->receive("deep/er/given-up", 10));
                    }
                    storage_->remove(key);  // the last one out prunes the directory
                } catch (const std::exception& error) {
                    const std::lock_guard lock(mutex);
                    failures.insert(error.what());
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(lost, 0) << "a value that was acknowledged is not there";
    EXPECT_TRUE(failures.empty()) << *failures.begin();
    EXPECT_TRUE(names("", true, 1000).empty());
}

}  // namespace
}  // namespace ucxstore::test

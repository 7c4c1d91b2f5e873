// What a full memory does with values that have no room: it loses those of a cache, or moves them
// to files.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "loopback.hpp"
#include "storage/evicting.hpp"
#include "storage/memory.hpp"
#include "storage/spaces.hpp"
#include "storage/spilling.hpp"
#include "support.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMemoryLimit = 16ull << 20;
constexpr std::uint64_t kSize = 256 << 10;

std::string name(const std::string& kind, int number) { return kind + std::to_string(number); }

bool put(Storage& storage, const std::string& key, const Bytes& value, bool if_absent = false) {
    const auto incoming = storage.receive(key, value.size());
    incoming->expect(value.size());
    incoming->write(0, value);
    return incoming->commit(if_absent);
}

std::optional<Bytes> get(Storage& storage, const std::string& key) {
    const auto region = storage.find(key);
    return region == nullptr ? std::nullopt : std::optional(content_of(*region));
}

std::vector<std::string> names(Storage& storage, const std::string& prefix) {
    std::vector<std::string> found;
    std::string cursor;
    do {
        const Page page = storage.list(prefix, false, cursor, 1 << 20);
        found.insert(found.end(), page.names.begin(), page.names.end());
        cursor = page.cursor;
    } while (!cursor.empty());
    return found;
}

// Memory on a shelf, or of the process alone.
class Full : public testing::TestWithParam<bool> {
  protected:
    Full() = default;
    ~Full() override { storage_.reset(); }

    void make(std::unique_ptr<Shedding> shedding) {
        auto shelf =
            GetParam() ? shared::Shelf::make({.counts_uses = true, .bound = quota_}) : nullptr;
        storage_ =
            std::make_shared<MemoryStorage>(quota_, false, std::move(shelf), std::move(shedding));
    }
    void evict(std::vector<std::string> below = {""}) {
        make(std::make_unique<Evicting>(std::move(below), kMemoryLimit));
    }
    void spill() { make(std::make_unique<Spilling>(directory_.path(), "; raise it")); }

    bool put(const std::string& key, const Bytes& value, bool if_absent = false) {
        return test::put(*storage_, key, value, if_absent);
    }
    std::optional<Bytes> get(const std::string& key) { return test::get(*storage_, key); }
    bool is_lost(const std::string& key) {
        return error_of([&] { storage_->find(key); }) == ErrorKind::evicted;
    }
    std::size_t files() const {
        const std::filesystem::directory_iterator all(directory_.path());
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }
    // That of memory itself; readers may still have to be asked.
    bool gives_all_back() {
        return eventually([&] {
            quota_->reclaim(1);
            return quota_->taken() == 0;
        });
    }

    const std::shared_ptr<Quota> quota_ = Quota::of_memory(kMemoryLimit, "; raise it");
    const TemporaryDirectory directory_;
    std::shared_ptr<MemoryStorage> storage_;
};

INSTANTIATE_TEST_SUITE_P(All, Full, testing::Bool(), [](const auto& info) {
    return info.param ? "OnAShelf" : "OfTheProcessAlone";
});

// ---- evicting ----

TEST_P(Full, WhatIsReadStaysAndTheOthersAreLost) {
    evict();
    for (int i = 0; i < 10; ++i) {
        put(name("hot", i), pattern(kSize, 1));
    }
    for (int i = 0; i < 300; ++i) {
        put(name("cold", i), pattern(kSize, 2));
        EXPECT_NE(storage_->find(name("hot", i % 10)), nullptr) << i;
        EXPECT_LE(quota_->used(), kMemoryLimit);
    }
    int lost = 0;
    for (int i = 0; i < 300; ++i) {
        lost += is_lost(name("cold", i));
    }
    EXPECT_GT(lost, 300 - static_cast<int>(kMemoryLimit / kSize));
    const MemoryCounts counts = storage_->memory();
    EXPECT_EQ(counts.evicted, static_cast<std::uint64_t>(lost));
    EXPECT_EQ(counts.evicted_keys, counts.evicted);
    EXPECT_EQ(counts.evicted_bytes, counts.evicted * kSize);
    EXPECT_EQ(counts.values, 310 - counts.evicted);
    EXPECT_EQ(counts.bytes, counts.values * kSize);
}

// Zarr reads a missing chunk as its fill value: so a lost one must be no missing one.
TEST_P(Full, ALostValueIsNoMissingOneUntilItsKeyIsSetOrRemoved) {
    evict();
    for (int i = 0; i < 100; ++i) {
        put(name("c/", i), pattern(kSize));
    }
    ASSERT_TRUE(is_lost("c/0"));
    EXPECT_EQ(storage_->size("c/0"), kSize);
    EXPECT_EQ(names(*storage_, "c/").size(), 100u);
    EXPECT_EQ(error_of([&] { put("c/0", pattern(10), true); }), ErrorKind::evicted);
    ASSERT_TRUE(is_lost("c/1"));
    put("c/0", pattern(10));
    EXPECT_EQ(get("c/0"), pattern(10));
    storage_->remove("c/1");
    EXPECT_EQ(get("c/1"), std::nullopt);
    EXPECT_EQ(remove_prefix(*storage_, "c/"), 99u);
    EXPECT_EQ(get("c/2"), std::nullopt);
    const MemoryCounts counts = storage_->memory();
    EXPECT_EQ(counts.evicted_keys, 0u);
    EXPECT_EQ(counts.values, 0u);
    EXPECT_EQ(counts.bytes, 0u);
    EXPECT_TRUE(gives_all_back());
}

TEST_P(Full, OnlyValuesOfACacheAreLostAndNoMetadata) {
    evict({"cache/", "more/"});
    for (const char* key : {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}) {
        put(std::string("cache/a/") + key, pattern(100));
    }
    put("cachet", pattern(kSize));
    put("kept/zarr.jsonx", pattern(kSize));
    for (int i = 0; i < 200; ++i) {
        put(name(i % 2 == 0 ? "cache/a/" : "more/", i), pattern(kSize));
    }
    EXPECT_GT(storage_->memory().evicted, 100u);
    for (const char* key : {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}) {
        EXPECT_EQ(get(std::string("cache/a/") + key), pattern(100));
    }
    EXPECT_EQ(get("cachet"), pattern(kSize));
    EXPECT_EQ(get("kept/zarr.jsonx"), pattern(kSize));
    int kept = 0;
    EXPECT_THROW(
        {
            for (; kept < 200; ++kept) {
                put(name("kept/", kept), pattern(kSize));
            }
        },
        NoRoomError);
    for (int i = 0; i < kept; ++i) {
        EXPECT_EQ(get(name("kept/", i)), pattern(kSize));
    }
}

TEST_P(Full, WhatIsInUseIsNotLost) {
    evict();
    put("used", pattern(kSize, 3));
    const auto used = storage_->find("used");
    for (int i = 0; i < 200; ++i) {
        put(name("k", i), pattern(kSize));
    }
    EXPECT_EQ(get("used"), pattern(kSize, 3));
    EXPECT_EQ(content_of(*used), pattern(kSize, 3));
}

// A value as large as a quarter of the memory, which lies between many small ones.
TEST_P(Full, ALargeValueFindsRoomAmongSmallOnes) {
    evict();
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
        put(name("k", i), pattern(1 + random() % 40'000));
        if (i % 3 == 0) {
            get(name("k", i));
        }
    }
    for (int i = 0; i < 5; ++i) {
        put(name("large", i), pattern(kMemoryLimit / 4));
        EXPECT_EQ(get(name("large", i)), pattern(kMemoryLimit / 4));
        EXPECT_LE(quota_->used(), kMemoryLimit);
    }
}

TEST_P(Full, WhereNoMoreKeysCanBeRememberedNothingIsLost) {
    evict();
    int stored = 0;
    EXPECT_THROW(
        {
            for (; stored < 200'000; ++stored) {
                put(name("k", stored), pattern(2000));
            }
        },
        NoRoomError);
    const std::uint64_t lost = storage_->memory().evicted_keys;
    EXPECT_GT(lost, 1000u);
    EXPECT_LE(lost * 512, kMemoryLimit / 8);
    EXPECT_LE(quota_->used(), kMemoryLimit);
    std::uint64_t found = 0;
    for (int i = 0; i < stored; ++i) {
        found += is_lost(name("k", i)) ? 0 : get(name("k", i)) == pattern(2000);
    }
    EXPECT_EQ(found + lost, static_cast<std::uint64_t>(stored));
    remove_prefix(*storage_, "k");
    EXPECT_TRUE(put("k", pattern(2000)));
}

TEST_P(Full, ACacheMakesRoomForScratchSpaces) {
    evict();
    for (int i = 0; i < 100; ++i) {
        put(name("k", i), pattern(kSize));
    }
    Spaces spaces(quota_, GetParam());
    const std::string space_name(32, '1');
    spaces.begin(space_name, 1ull << 40, 1h);
    const auto space = spaces.find(space_name);
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(test::put(*space, name("s", i), pattern(kSize)));
    }
    for (int i = 0; i < 100; ++i) {
        put(name("k", i), pattern(kSize));
    }
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(test::get(*space, name("s", i)), pattern(kSize));
    }
    EXPECT_LE(quota_->used(), kMemoryLimit);
}

// ---- spilling ----

TEST_P(Full, TenTimesTheMemoryIsThere) {
    spill();
    constexpr int kCount = 10 * kMemoryLimit / kSize;
    for (int i = 0; i < kCount; ++i) {
        put(name("k", i), pattern(kSize, static_cast<unsigned>(i)));
        EXPECT_LE(quota_->used(), kMemoryLimit);
    }
    for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(get(name("k", i)), pattern(kSize, static_cast<unsigned>(i))) << i;
        EXPECT_EQ(storage_->size(name("k", i)), kSize);
    }
    const MemoryCounts counts = storage_->memory();
    EXPECT_EQ(counts.values, static_cast<std::uint64_t>(kCount));
    EXPECT_EQ(counts.bytes, kCount * kSize);
    EXPECT_GT(counts.spilled, kCount * 8 / 10);
    EXPECT_EQ(counts.spilled_bytes, counts.spilled * kSize);
    EXPECT_EQ(names(*storage_, "").size(), static_cast<std::size_t>(kCount));
    EXPECT_EQ(remove_prefix(*storage_, "k"), static_cast<std::uint64_t>(kCount));
    EXPECT_TRUE(gives_all_back());
    EXPECT_TRUE(eventually([&] { return files() == 0; }));
    EXPECT_EQ(storage_->memory().spilled_bytes, 0u);
}

// More than all of it, too.
TEST_P(Full, AValueThatIsTooLargeForTheMemoryGoesToAFile) {
    spill();
    const Bytes large = pattern(2 * kMemoryLimit + 3);
    put("large", large);
    EXPECT_EQ(get("large"), large);
    EXPECT_EQ(storage_->memory().spilled, 1u);
}

TEST_P(Full, AFileGoesWithItsValue) {
    spill();
    for (int i = 0; i < 200; ++i) {
        put(name("k", i), pattern(kSize, 1));
    }
    EXPECT_TRUE(eventually([&] { return storage_->memory().spilled > 100; }));
    const auto read = storage_->find("k0");
    ASSERT_TRUE(read->waits());
    const std::uint64_t version = read->version();
    EXPECT_FALSE(put("k0", pattern(5), true));
    put("k0", pattern(100, 2));
    EXPECT_EQ(get("k0"), pattern(100, 2));
    EXPECT_NE(storage_->find("k0")->version(), version);
    EXPECT_EQ(content_of(*read), pattern(kSize, 1)) << "whoever reads it has it";
    remove_prefix(*storage_, "k");
    EXPECT_EQ(content_of(*read), pattern(kSize, 1));
    EXPECT_TRUE(eventually([&] { return files() == 1; }));
}

TEST_P(Full, AValueKeepsItsVersionOnItsWayToAFile) {
    spill();
    std::vector<std::uint64_t> versions;
    for (int i = 0; i < 100; ++i) {
        put(name("k", i), pattern(kSize));
        versions.push_back(storage_->find(name("k", i))->version());
    }
    EXPECT_TRUE(eventually([&] { return storage_->memory().spilled > 30; }));
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(storage_->find(name("k", i))->version(), versions[static_cast<std::size_t>(i)]);
    }
}

TEST_P(Full, WhatIsReadStaysInMemory) {
    spill();
    for (int i = 0; i < 10; ++i) {
        put(name("hot", i), pattern(kSize));
    }
    for (int i = 0; i < 300; ++i) {
        put(name("cold", i), pattern(kSize));
        EXPECT_NE(storage_->find(name("hot", i % 10)), nullptr);
        // The thread that moves values comes along.
        EXPECT_TRUE(eventually([&] { return quota_->room() > kSize; }));
    }
    int in_memory = 0;
    for (int i = 0; i < 10; ++i) {
        in_memory += storage_->find(name("hot", i))->waits() ? 0 : 1;
    }
    EXPECT_GE(in_memory, 9);
}

// Files cannot grow any more, as on a full disk.
class NoLargeFiles {
  public:
    explicit NoLargeFiles(std::uint64_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        handler_ = signal(SIGXFSZ, SIG_IGN);
        const rlimit less{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &less);
    }
    NoLargeFiles(const NoLargeFiles&) = delete;
    NoLargeFiles& operator=(const NoLargeFiles&) = delete;
    ~NoLargeFiles() {
        setrlimit(RLIMIT_FSIZE, &before_);
        signal(SIGXFSZ, handler_);
    }

  private:
    rlimit before_{};
    void (*handler_)(int);
};

TEST_P(Full, AFullDiskLosesNothing) {
    if (GetParam()) {
        return;  // an arena is a file, too
    }
    spill();
    int stored = 0;
    std::string refusal;
    {
        const NoLargeFiles full(kSize / 2);
        try {
            for (; stored < 200; ++stored) {
                put(name("k", stored), pattern(kSize, static_cast<unsigned>(stored)));
            }
        } catch (const NoRoomError& error) {
            refusal = error.what();
        }
        EXPECT_EQ(refusal, "no room for 262144 bytes: memory is full, and so they were to go to " +
                               directory_.path().string() + ": File too large; raise it");
        EXPECT_GT(stored, 40);
        EXPECT_EQ(storage_->memory().spilled, 0u);
        for (int i = 0; i < stored; ++i) {
            EXPECT_EQ(get(name("k", i)), pattern(kSize, static_cast<unsigned>(i)));
        }
        EXPECT_EQ(get(name("k", stored)), std::nullopt);
        EXPECT_TRUE(eventually([&] { return files() == 0; }));
    }
    EXPECT_TRUE(put("k0", pattern(kSize, 7)));
    EXPECT_EQ(get("k0"), pattern(kSize, 7));
    for (int i = stored; i < 2 * stored; ++i) {
        put(name("k", i), pattern(kSize));
    }
    EXPECT_TRUE(eventually([&] { return storage_->memory().spilled > 0; }));
}

TEST_P(Full, FilesOfAnEarlierOneAreRemovedAndItsOwnAtTheEnd) {
    {
        std::ofstream(directory_.path() / "1-1.ucxstore-spilled") << "left";
        std::ofstream(directory_.path() / "mine.txt") << "kept";
    }
    spill();
    EXPECT_EQ(files(), 1u);
    for (int i = 0; i < 200; ++i) {
        put(name("k", i), pattern(kSize));
    }
    const auto read = storage_->find("k0");
    storage_->leave();
    EXPECT_EQ(files(), 1u);
    EXPECT_TRUE(std::filesystem::exists(directory_.path() / "mine.txt"));
    EXPECT_EQ(error_of([&] { content_of(*read); }), ErrorKind::storage);
}

TEST_P(Full, AFileThatIsGoneIsAnErrorOfItsKey) {
    spill();
    for (int i = 0; i < 200; ++i) {
        put(name("k", i), pattern(kSize));
    }
    EXPECT_TRUE(eventually([&] { return storage_->memory().spilled > 100; }));
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
        std::filesystem::resize_file(entry.path(), kSize / 2);
    }
    const auto value = storage_->find("k0");
    ASSERT_TRUE(value->waits());
    try {
        content_of(*value);
        FAIL() << "half of it is missing";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "'k0' was cut short while it was read");
    }
}

// ---- against a model ----

// What one thread does to keys of its own, and what it then must find.
class Model {
  public:
    Model(MemoryStorage& storage, bool loses, unsigned seed)
        : storage_(storage), loses_(loses), random_(seed), prefix_(name("t", seed) + "/") {}

    void step() {
        const unsigned what = random_() % 100;
        const std::string key = prefix_ + std::to_string(random_() % 60);
        if (what < 45) {
            check(key);
        } else if (what < 80) {
            set(key);
        } else if (what < 90) {
            storage_.remove(key);
            values_.erase(key);
        } else if (what < 92) {
            remove_some();
        } else if (what < 95) {
            check_names();
        } else {
            hold(key);
        }
    }
    void check_all() {
        held_.clear();
        check_names();
        for (const auto& [key, value] : values_) {
            check(key);
        }
    }

    int refused = 0;
    int set_count = 0;
    int lost = 0;

  private:
    void check(const std::string& key) {
        const auto expected = values_.find(key);
        EXPECT_EQ(storage_.size(key), expected == values_.end()
                                          ? std::nullopt
                                          : std::optional<std::uint64_t>(expected->second.size()));
        try {
            const auto found = get(storage_, key);
            EXPECT_EQ(found.has_value(), expected != values_.end()) << key;
            EXPECT_TRUE(!found || *found == expected->second) << key;
        } catch (const Error& error) {
            EXPECT_TRUE(loses_ && error.kind() == ErrorKind::evicted) << error.what();
            EXPECT_NE(expected, values_.end()) << "only what was there is lost";
            ++lost;
        }
    }
    void set(const std::string& key) {
        Bytes value = pattern(some_size(), static_cast<unsigned>(random_()));
        const bool if_absent = random_() % 8 == 0;
        ++set_count;
        try {
            if (put(storage_, key, value, if_absent)) {
                EXPECT_TRUE(!if_absent || !values_.contains(key));
                values_[key] = std::move(value);
            } else {
                EXPECT_TRUE(if_absent && values_.contains(key));
            }
        } catch (const Error& error) {
            const bool full = dynamic_cast<const NoRoomError*>(&error) != nullptr;
            EXPECT_TRUE(full || (loses_ && if_absent && error.kind() == ErrorKind::evicted))
                << error.what();
            refused += full ? 1 : 0;
        }
    }
    std::size_t some_size() {
        switch (random_() % 10) {
            case 0:
                return random_() % (2 << 20);
            case 1:
                return random_() % 10;
            default:
                return random_() % (300 << 10);
        }
    }
    void remove_some() {
        const std::string begin = prefix_ + std::to_string(random_() % 10);
        remove_prefix(storage_, begin);
        std::erase_if(values_, [&](const auto& one) { return one.first.starts_with(begin); });
    }
    void check_names() {
        std::vector<std::string> expected;
        for (const auto& [key, value] : values_) {
            expected.push_back(key);
        }
        EXPECT_EQ(names(storage_, prefix_), expected);
    }
    // Some values stay in use for a while, whatever becomes of their keys.
    void hold(const std::string& key) {
        if (held_.size() > 3) {
            for (const auto& [region, value] : held_) {
                EXPECT_EQ(content_of(*region), value);
            }
            held_.clear();
        }
        try {
            if (auto region = storage_.find(key)) {
                held_.emplace_back(std::move(region), values_.at(key));
            }
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::evicted);
        }
    }

    MemoryStorage& storage_;
    const bool loses_;
    std::mt19937 random_;
    const std::string prefix_;
    std::map<std::string, Bytes> values_;
    std::vector<std::pair<std::shared_ptr<const Region>, Bytes>> held_;
};

void compare_with_model(MemoryStorage& storage, const Quota& quota, bool loses) {
    std::vector<std::unique_ptr<Model>> models;
    std::vector<std::thread> threads;
    std::atomic<bool> done = false;
    for (unsigned seed = 1; seed <= 4; ++seed) {
        models.push_back(std::make_unique<Model>(storage, loses, seed));
    }
    for (const auto& model : models) {
        threads.emplace_back([&model] {
            for (int i = 0; i < 1500; ++i) {
                model->step();
            }
        });
    }
    std::thread watcher([&] {
        while (!done) {
            EXPECT_LE(quota.used(), kMemoryLimit);
            storage.memory();
            std::this_thread::sleep_for(1ms);
        }
    });
    for (std::thread& thread : threads) {
        thread.join();
    }
    done = true;
    watcher.join();
    int sets = 0;
    int refused = 0;
    int lost = 0;
    for (const auto& model : models) {
        model->check_all();
        sets += model->set_count;
        refused += model->refused;
        lost += model->lost;
    }
    EXPECT_EQ(lost > 0, loses);
    // Where others hold or write as much as there is, a new value has no room.
    EXPECT_LE(refused, loses ? sets / 10 : 0);
    remove_prefix(storage, "t");
}

TEST_P(Full, ManyThreadsThatEvictFindWhatAModelHas) {
    evict();
    compare_with_model(*storage_, *quota_, true);
    EXPECT_EQ(storage_->memory().evicted_keys, 0u);
    EXPECT_TRUE(gives_all_back());
}

TEST_P(Full, ManyThreadsThatSpillFindWhatAModelHas) {
    spill();
    compare_with_model(*storage_, *quota_, false);
    EXPECT_TRUE(gives_all_back());
    EXPECT_TRUE(eventually([&] { return files() == 0; }));
}

// ---- through a session ----

class SpilledReads : public testing::Test {
  protected:
    SpilledReads() {
        storage_ =
            std::make_shared<MemoryStorage>(Quota::of_memory(1 << 20), false, nullptr,
                                            std::make_unique<Spilling>(directory_.path().string()));
    }

    const TemporaryDirectory directory_;
    std::shared_ptr<MemoryStorage> storage_;
};

TEST_F(SpilledReads, GiveWholeValuesRangesAndBoxes) {
    Loopback both({}, false, storage_);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5000},
                                   std::size_t{600'000}, std::size_t{5'000'000}}) {
        const Bytes value = pattern(size, 5);
        // The memory has no room for this, and so it goes to a file at once.
        const Bytes other = pattern(900 << 10);
        both.set("other", other);
        both.set("k", value);
        EXPECT_EQ(both.get("k"), value) << size;
        EXPECT_EQ(both.stat("k"), size);
        if (size < 1000) {
            continue;
        }
        EXPECT_EQ(both.get("k", std::vector<Range>{{Range::Kind::suffix, 2, 0},
                                                   {Range::Kind::range, 7, 7},
                                                   {Range::Kind::range, 0, size - 1}}),
                  [&] {
                      Bytes parts(value.end() - 2, value.end());
                      parts.insert(parts.end(), value.begin(), value.end() - 1);
                      return parts;
                  }());
        const std::vector<Dim> rows{{4, 1000}};
        const Layout box = Layout::strided(3, 10, rows);
        const auto found = both.get("k", box);
        Bytes expected;
        for (std::size_t row = 0; row < 4; ++row) {
            const auto begin = value.begin() + static_cast<std::ptrdiff_t>(3 + row * 1000);
            expected.insert(expected.end(), begin, begin + 10);
        }
        EXPECT_EQ(found, expected);
    }
    EXPECT_GT(storage_->memory().spilled, 0u);
}

TEST_F(SpilledReads, ManyAtOnceAndAFailureOfOne) {
    Loopback both({}, false, storage_);
    constexpr int kCount = 60;
    std::vector<Bytes> values;
    for (int i = 0; i < kCount; ++i) {
        values.push_back(pattern(200'000 + static_cast<std::size_t>(i), static_cast<unsigned>(i)));
        both.set(name("k", i), values.back());
    }
    ASSERT_GT(storage_->memory().spilled, static_cast<std::uint64_t>(kCount / 2));
    std::vector<Get> gets;
    std::vector<Bytes> into(kCount);
    for (int i = 0; i < kCount; ++i) {
        into[static_cast<std::size_t>(i)].resize(values[static_cast<std::size_t>(i)].size());
        gets.push_back({name("k", i), {}, memory_of(into[static_cast<std::size_t>(i)])});
    }
    both.run(get_operation(gets));
    EXPECT_EQ(into, values);
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
        std::filesystem::remove(entry.path());
    }
    int failed = 0;
    for (int i = 0; i < kCount; ++i) {
        try {
            EXPECT_EQ(both.get(name("k", i)), values[static_cast<std::size_t>(i)]);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::storage);
            EXPECT_NE(std::string(error.what()).find(name("k", i)), std::string::npos);
            ++failed;
        }
    }
    EXPECT_GT(failed, kCount / 2);
}

TEST(LostReads, AreErrorsOfTheirKey) {
    const auto quota = Quota::of_memory(4 << 20);
    const auto storage = std::make_shared<MemoryStorage>(
        quota, false, nullptr,
        std::make_unique<Evicting>(std::vector<std::string>{""}, quota->limit()));
    Loopback both({}, false, storage);
    for (int i = 0; i < 100; ++i) {
        both.set(name("k", i), pattern(100'000));
    }
    try {
        both.get("k0");
        FAIL() << "it was lost";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::evicted);
        EXPECT_NE(std::string(error.what()).find("'k0' was evicted: "), std::string::npos);
    }
    EXPECT_EQ(both.stat("k0"), 100'000u);
    EXPECT_EQ(both.get("k99"), pattern(100'000));
    both.set("k0", pattern(10));
    EXPECT_EQ(both.get("k0"), pattern(10));
}

}  // namespace
}  // namespace ucxstore::test

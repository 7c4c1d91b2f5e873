// The second tier of a cache: files, their bound, and what is never read from them.
#include "cache/disk.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "support.hpp"

namespace ucxstore::test {
namespace {

class Disk : public testing::Test {
  protected:
    static constexpr std::uint64_t kCapacity = 1 << 20;

    bool put(const std::string& key, const Bytes& value, const std::string& etag = "e",
             std::optional<std::uint64_t> begin = std::nullopt) {
        const auto file = disk_.add(key, begin, value.size(), etag);
        return file != nullptr && disk_.write(*file, value);
    }
    std::optional<Bytes> read(const std::optional<DiskCache::Found>& found) const {
        const auto region = found ? disk_.read(*found) : nullptr;
        if (region == nullptr) {
            return std::nullopt;
        }
        return Bytes(region->data(), region->data() + region->size());
    }
    std::optional<Bytes> get(const std::string& key) { return read(disk_.find(key)); }
    std::vector<std::filesystem::path> files() const {
        std::vector<std::filesystem::path> paths;
        for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
            paths.push_back(entry.path());
        }
        return paths;
    }
    std::uint64_t file_bytes() const {
        std::uint64_t sum = 0;
        for (const auto& path : files()) {
            sum += std::filesystem::file_size(path);
        }
        return sum;
    }

    const TemporaryDirectory directory_;
    DiskCache disk_{directory_.path(), kCapacity};
};

TEST_F(Disk, GivesBackWhatWasPut) {
    const Bytes value = pattern(100'000);
    EXPECT_EQ(get("k"), std::nullopt);
    EXPECT_TRUE(put("k", value, "one"));
    EXPECT_EQ(get("k"), value);
    EXPECT_EQ(disk_.find("k")->etag, "one");
    EXPECT_EQ(disk_.add("k", std::nullopt, value.size(), "one"), nullptr) << "it is there";
    const Bytes other = pattern(5000, 7);
    EXPECT_TRUE(put("k", other, "two"));
    EXPECT_EQ(get("k"), other);
    EXPECT_TRUE(put("empty", {}));
    EXPECT_EQ(get("empty"), Bytes());
    disk_.sweep();
    EXPECT_EQ(files().size(), 2u);
}

TEST_F(Disk, WhatIsNotWrittenYetIsNotFound) {
    const Bytes value = pattern(1000);
    const auto file = disk_.add("k", std::nullopt, value.size(), "e");
    const auto part = disk_.add("l", 0, value.size(), "e");
    EXPECT_FALSE(disk_.find("k"));
    EXPECT_FALSE(disk_.find_part("k", 0, 10, "e"));
    EXPECT_FALSE(disk_.find_part("l", 0, 10, "e"));
    EXPECT_FALSE(disk_.write(*file, std::span(value).first(10))) << "nor what is cut short";
    EXPECT_FALSE(disk_.find("k"));
    EXPECT_TRUE(disk_.write(*part, value));
    EXPECT_TRUE(disk_.find_part("l", 0, 10, "e"));
}

TEST_F(Disk, PartsArePutTogether) {
    const Bytes value = pattern(100'000);
    const auto cut = [&](std::uint64_t begin, std::uint64_t end) {
        return Bytes(value.begin() + static_cast<std::ptrdiff_t>(begin),
                     value.begin() + static_cast<std::ptrdiff_t>(end));
    };
    for (const auto& [begin, end] : {std::pair{0, 20'000}, {20'000, 30'000}, {60'000, 100'000}}) {
        EXPECT_TRUE(put("k", cut(begin, end), "e", begin));
    }
    const auto get_part = [&](std::uint64_t begin, std::uint64_t end) {
        return read(disk_.find_part("k", begin, end, "e"));
    };
    EXPECT_EQ(get_part(5, 10), cut(5, 10));
    EXPECT_EQ(get_part(19'000, 30'000), cut(19'000, 30'000)) << "of two files";
    EXPECT_EQ(get_part(99'999, 100'000), cut(99'999, 100'000));
    EXPECT_EQ(get_part(25'000, 30'001), std::nullopt) << "a byte is missing";
    EXPECT_EQ(get_part(40'000, 50'000), std::nullopt);
    EXPECT_EQ(get_part(90'000, 100'001), std::nullopt);
    EXPECT_FALSE(disk_.find_part("k", 5, 10, "other"));
    EXPECT_FALSE(disk_.find_part("k2", 5, 10, "e"));
    EXPECT_FALSE(disk_.find("k"));
    EXPECT_TRUE(put("k", value));
    EXPECT_EQ(get_part(40'000, 50'000), cut(40'000, 50'000)) << "of the whole value";
}

TEST_F(Disk, WhatIsForgottenIsGone) {
    for (const char* key : {"a/1", "a/2", "a0", "b"}) {
        EXPECT_TRUE(put(key, pattern(1000)));
        EXPECT_TRUE(put(key, pattern(1000), "e", 4096));
    }
    disk_.forget("b");
    EXPECT_FALSE(disk_.find("b"));
    EXPECT_FALSE(disk_.find_part("b", 4096, 5000, "e"));
    disk_.forget_prefix("a/");
    EXPECT_FALSE(disk_.find("a/1"));
    EXPECT_FALSE(disk_.find_part("a/2", 4096, 5000, "e"));
    EXPECT_EQ(get("a0"), pattern(1000));
    disk_.sweep();
    EXPECT_EQ(files().size(), 2u);
    disk_.forget_prefix("");
    disk_.sweep();
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(disk_.bytes(), 0u);
}

TEST_F(Disk, TakesNoMoreThanItMay) {
    std::uint64_t most = 0;
    for (int i = 0; i < 300; ++i) {
        EXPECT_TRUE(put(std::to_string(i), pattern(10'000 + i)));
        most = std::max(most, file_bytes());
        EXPECT_LE(disk_.bytes(), kCapacity);
    }
    EXPECT_LE(most, kCapacity);
    EXPECT_GT(most, kCapacity * 3 / 4) << "and it is used";
    EXPECT_EQ(get("299"), pattern(10'299));
    EXPECT_FALSE(put("large", pattern(kCapacity + 1)));
    EXPECT_EQ(get("299"), pattern(10'299)) << "for which nothing has to go";
}

TEST_F(Disk, SmallFilesCountAsTheBlocksThatTheyTake) {
    for (int i = 0; i < 1000; ++i) {
        EXPECT_TRUE(put(std::to_string(i), pattern(1)));
    }
    disk_.sweep();
    EXPECT_LE(files().size(), kCapacity / 4096);
}

// A reader has the file that it has found, whatever becomes of the key.
TEST_F(Disk, WhatIsBeingReadIsThere) {
    const Bytes value = pattern(10'000);
    EXPECT_TRUE(put("k", value));
    const auto found = disk_.find("k");
    EXPECT_TRUE(put("k", pattern(10'000, 1), "new"));
    disk_.forget("k");
    disk_.sweep();
    EXPECT_EQ(read(found), value);
}

TEST_F(Disk, AFileThatSomebodyHasChangedIsNotRead) {
    EXPECT_TRUE(put("short", pattern(10'000)));
    std::filesystem::resize_file(files().at(0), 9'999);
    EXPECT_EQ(get("short"), std::nullopt);
    disk_.forget("short");
    disk_.sweep();
    EXPECT_TRUE(put("gone", pattern(10'000)));
    std::filesystem::remove(files().at(0));
    EXPECT_EQ(get("gone"), std::nullopt);
}

TEST_F(Disk, ADirectoryThatHasGoneCostsNoMoreThanHits) {
    EXPECT_TRUE(put("k", pattern(10'000)));
    std::filesystem::remove_all(directory_.path());
    EXPECT_EQ(get("k"), std::nullopt);
    EXPECT_FALSE(put("l", pattern(10'000)));
    EXPECT_EQ(error_of([&] { DiskCache(directory_.path(), kCapacity); }), ErrorKind::storage);
}

TEST_F(Disk, FilesOfAnEarlierOneAreRemovedAndNoOthers) {
    EXPECT_TRUE(put("k", pattern(10'000)));
    std::ofstream(directory_.path() / "mine.txt") << "kept";
    DiskCache next(directory_.path(), kCapacity);
    EXPECT_FALSE(next.find("k"));
    ASSERT_EQ(files().size(), 1u);
    EXPECT_EQ(files().at(0).filename(), "mine.txt");
    EXPECT_EQ(get("k"), std::nullopt) << "the earlier one gets nothing else for it";
}

TEST_F(Disk, ManyThreadsUseIt) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (unsigned seed = 0; seed < 4; ++seed) {
        threads.emplace_back([&, seed] {
            for (unsigned i = 0; i < 200; ++i) {
                const unsigned number = (i * 7 + seed) % 150;
                const std::string key = std::to_string(number);
                const Bytes value = pattern(8000 + number, number);
                if (i % 20 == 0) {
                    disk_.forget(key);
                } else if (const auto found = get(key)) {
                    wrong += *found != value ? 1 : 0;
                } else {
                    put(key, value);
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
    disk_.sweep();
    EXPECT_LE(file_bytes(), kCapacity);
}

}  // namespace
}  // namespace ucxstore::test

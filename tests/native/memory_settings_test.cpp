#include "storage/memory_settings.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace ucxstore::test {
namespace {

class MemorySettingsTest : public testing::Test {
  protected:
    static constexpr std::uint64_t kLimit = 4ull << 20;
    static constexpr std::uint64_t kSize = 256 << 10;
    static constexpr int kValues = 40;

    static std::string key(int number) { return "group/" + std::to_string(number); }
    // Puts values that have no room together. Returns the text of the refusal; "" where there is
    // none.
    static std::string fill(MemoryStorage& storage) {
        try {
            for (int i = 0; i < kValues; ++i) {
                const auto incoming = storage.receive(key(i), kSize);
                incoming->expect(kSize);
                incoming->write(0, pattern(kSize));
                incoming->commit(false);
            }
        } catch (const NoRoomError& error) {
            return error.what();
        }
        return "";
    }
    static int lost(MemoryStorage& storage) {
        int count = 0;
        for (int i = 0; i < kValues; ++i) {
            count += error_of([&] { storage.find(key(i)); }) == ErrorKind::evicted ? 1 : 0;
        }
        return count;
    }

    const MemorySettings settings_{.limit = kLimit, .hint = {}, .evict = {}, .spill = {}};
};

TEST_F(MemorySettingsTest, WhatHasNoRoomIsRefused) {
    MemoryStorage storage = make_memory(settings_);
    EXPECT_NE(fill(storage), "");
    EXPECT_EQ(storage.shelf(), nullptr);
    MemorySettings hinted = settings_;
    hinted.hint = "; raise it";
    MemoryStorage other = make_memory(hinted);
    EXPECT_TRUE(fill(other).ends_with("; raise it"));
}

TEST_F(MemorySettingsTest, WhatHasNoRoomIsLost) {
    MemorySettings settings = settings_;
    settings.visible = true;
    settings.evict = {"group/"};
    MemoryStorage storage = make_memory(settings);
    EXPECT_EQ(fill(storage), "");
    EXPECT_GT(lost(storage), 0);
    EXPECT_NE(storage.shelf(), nullptr);
    settings.evict = {"another/"};
    MemoryStorage other = make_memory(settings);
    EXPECT_NE(fill(other), "");
}

TEST_F(MemorySettingsTest, WhatHasNoRoomGoesToFiles) {
    const TemporaryDirectory directory;
    MemorySettings settings = settings_;
    settings.spill = directory.path().string();
    MemoryStorage storage = make_memory(settings);
    EXPECT_EQ(fill(storage), "");
    EXPECT_EQ(lost(storage), 0);
    EXPECT_FALSE(std::filesystem::is_empty(directory.path()));
    storage.leave();
}

}  // namespace
}  // namespace ucxstore::test

#include "storage/memory_settings.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace ucxstore {
namespace {

using namespace test;

constexpr std::uint64_t kLimit = 4ull << 20;
constexpr std::uint64_t kSize = 256 << 10;

// Puts values that have no room together. Returns the text of the refusal; "" where there is none.
std::string fill(MemoryStorage& storage) {
    try {
        for (int i = 0; i < 40; ++i) {
            const auto incoming = storage.receive("group/" + std::to_string(i), kSize);
            incoming->expect(kSize);
            incoming->write(0, pattern(kSize));
            incoming->commit(false);
        }
    } catch (const NoRoomError& error) {
        return error.what();
    }
    return "";
}

// How many of them are lost.
int lost(MemoryStorage& storage) {
    int count = 0;
    for (int i = 0; i < 40; ++i) {
        count +=
            error_of([&] { storage.find("group/" + std::to_string(i)); }) == ErrorKind::evicted;
    }
    return count;
}

TEST(MemorySettings, WhatHasNoRoomIsRefused) {
    MemoryStorage storage = make_memory({.limit = kLimit});
    EXPECT_NE(fill(storage), "");
    EXPECT_EQ(storage.shelf(), nullptr);
    MemoryStorage hinted = make_memory({.limit = kLimit, .hint = "; raise it"});
    EXPECT_TRUE(fill(hinted).ends_with("; raise it"));
}

TEST(MemorySettings, WhatHasNoRoomIsLost) {
    MemoryStorage storage =
        make_memory({.limit = kLimit, .visible = true, .hint = "", .evict = {{"group/"}}});
    EXPECT_EQ(fill(storage), "");
    EXPECT_GT(lost(storage), 0);
    EXPECT_NE(storage.shelf(), nullptr);
    MemoryStorage other = make_memory({.limit = kLimit, .hint = "", .evict = {{"another/"}}});
    EXPECT_NE(fill(other), "");
}

TEST(MemorySettings, WhatHasNoRoomGoesToFiles) {
    const TemporaryDirectory directory;
    MemoryStorage storage =
        make_memory({.limit = kLimit, .hint = "", .spill = directory.path().string()});
    EXPECT_EQ(fill(storage), "");
    EXPECT_EQ(lost(storage), 0);
    EXPECT_FALSE(std::filesystem::is_empty(directory.path()));
    storage.leave();
}

}  // namespace
}  // namespace ucxstore

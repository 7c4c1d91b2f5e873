// What a client sees of a server's memory once the server has taken back what it had pinned.
#include "local_client/visible.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "loopback.hpp"
#include "shared/shelf.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

class Taken : public testing::Test {
  protected:
    Taken() {
        value_ = shelf_->allocate("a", kSize);
        std::memset(value_->data(), 7, kSize);
        value_->set_version(1);
        shelf_->publish(*value_);
        visible_.pins = std::make_shared<shared::Pins>(table_->take_descriptors());
        visible_.held = std::make_shared<HeldValues>(
            visible_.pins, std::make_shared<shared::ReaderLimitView>(shelf_->reader_limit()),
            nullptr);
        visible_.index = std::make_shared<shared::IndexReader>(shelf_->index().descriptor);
        const std::uint32_t number = shelf_->arena_with(*value_).value();
        auto arena = shelf_->arena(number);
        visible_.arenas[number] =
            std::make_shared<SeenArena>(std::move(arena.descriptor), arena.bytes, 1ull << 40, true);
    }
    std::shared_ptr<Operation> ask(bool borrows, bool& answered) {
        const auto operation = get_operation({{"a", {}}});
        operation->borrows = borrows;
        answered = visible_.answer("server", *operation, 0);
        return operation;
    }

    static constexpr std::uint64_t kSize = 100'000;
    const std::shared_ptr<shared::Shelf> shelf_ = shared::Shelf::make();
    const std::shared_ptr<shared::PinTable> table_ = shelf_->add_reader();
    std::shared_ptr<Region> value_;
    Visible visible_;
};

TEST_F(Taken, WhatIsCopiedAfterwardsIsNotUsed) {
    Bytes out(kSize);
    const auto room = [&](std::uint64_t size) { return size <= kSize ? out.data() : nullptr; };
    EXPECT_EQ(visible_.copy("a", room), kSize);
    EXPECT_EQ(visible_.copy("a", [](std::uint64_t) { return nullptr; }), std::nullopt);
    bool answered = false;
    EXPECT_EQ(ask(false, answered)->items[0].size, kSize);
    EXPECT_TRUE(answered);
    table_->revoke("too much");
    EXPECT_EQ(visible_.copy("a", room), std::nullopt);
    const auto operation = ask(false, answered);
    EXPECT_FALSE(answered);
    EXPECT_EQ(operation->items[0].owned, nullptr);
    EXPECT_EQ(operation->items[0].size, kAnySize);
    ask(true, answered);
    EXPECT_FALSE(answered);
    EXPECT_EQ(visible_.hold("a"), nullptr);
}

TEST_F(Taken, WhatWasLentSaysSo) {
    bool answered = false;
    const auto operation = ask(true, answered);
    ASSERT_TRUE(answered);
    const auto lent = operation->items[0].owned;
    const auto held = visible_.hold("a");
    ASSERT_TRUE(lent->read_only());
    EXPECT_FALSE(lent->lost());
    EXPECT_FALSE(held->lost());
    table_->end();  // only the session: what is pinned stays as it is
    EXPECT_FALSE(lent->lost());
    table_->revoke("too much");
    EXPECT_TRUE(lent->lost());
    EXPECT_TRUE(held->lost());
    table_->end();
    EXPECT_TRUE(lent->lost());
}

}  // namespace
}  // namespace ucxstore::test

// Values on their way to a storage that takes its time: how many bytes of them, and who waits.
#include "storage/write_budget.hpp"

#include "remote_fixture.hpp"

namespace ucxstore::test {
namespace {

using Room = WriteBudget::Room;

// What a taker has, as soon as it has it.
struct Taker {
    Room room;
    void take(WriteBudget& budget, std::uint64_t bytes, const WriteBudget::Owner& owner = {}) {
        room = budget.take(bytes, [this](Room later) { room = std::move(later); }, owner);
    }
};

TEST(WriteBudget, WhoComesFirstIsServedFirst) {
    WriteBudget budget(100);
    std::vector<Taker> takers(4);
    takers[0].take(budget, 60);
    takers[1].take(budget, 50);
    takers[2].take(budget, 10);  // for which there would be room
    takers[3].take(budget, 50);
    EXPECT_NE(takers[0].room, nullptr);
    EXPECT_EQ(takers[1].room, nullptr);
    EXPECT_EQ(takers[2].room, nullptr);
    EXPECT_EQ(budget.taken(), 60u);
    takers[0].room = nullptr;
    EXPECT_NE(takers[1].room, nullptr);
    EXPECT_NE(takers[2].room, nullptr);
    EXPECT_EQ(takers[3].room, nullptr);
    takers[1].room = nullptr;
    EXPECT_NE(takers[3].room, nullptr);
    EXPECT_EQ(budget.taken(), 60u);
}

TEST(WriteBudget, WhatIsLargerThanAllOfItGoesAlone) {
    WriteBudget budget(100);
    std::vector<Taker> takers(3);
    takers[0].take(budget, 1);
    takers[1].take(budget, 1000);
    takers[2].take(budget, 1);
    EXPECT_EQ(takers[1].room, nullptr);
    takers[0].room = nullptr;
    EXPECT_NE(takers[1].room, nullptr);
    EXPECT_EQ(takers[2].room, nullptr);
    takers[1].room = nullptr;
    EXPECT_NE(takers[2].room, nullptr);
}

TEST(WriteBudget, NoOwnerKeepsTheOthersOut) {
    WriteBudget budget(100);
    std::vector<Taker> takers(7);
    takers[0].take(budget, 1'000'000, "greedy");
    takers[1].take(budget, 1, "greedy");
    EXPECT_EQ(takers[1].room, nullptr);
    EXPECT_TRUE(budget.is_short());
    takers[2].take(budget, 20, "other");
    EXPECT_NE(takers[2].room, nullptr) << "its share, though the greedy one has all and waits";
    takers[3].take(budget, 20, "other");
    EXPECT_EQ(takers[3].room, nullptr) << "more than its share";
    takers[4].take(budget, 1000, "third");
    EXPECT_NE(takers[4].room, nullptr) << "one that is larger than its share goes alone";
    takers[5].take(budget, 1, "third");
    EXPECT_EQ(takers[5].room, nullptr);
    takers[2].room = nullptr;
    EXPECT_NE(takers[3].room, nullptr);
    EXPECT_EQ(takers[1].room, nullptr);
    takers[0].room = nullptr;
    takers[4].room = nullptr;
    EXPECT_NE(takers[1].room, nullptr);
    EXPECT_NE(takers[5].room, nullptr);
    EXPECT_FALSE(budget.is_short());
    for (Taker& taker : takers) {
        taker.room = nullptr;
    }
    EXPECT_EQ(budget.taken(), 0u);
}

TEST(WriteBudget, NothingTakesNothing) {
    WriteBudget budget(100);
    std::vector<Taker> takers(3);
    for (Taker& taker : takers) {
        taker.take(budget, 0);
        EXPECT_NE(taker.room, nullptr);
    }
    for (Taker& taker : takers) {
        taker.room = nullptr;
    }
    EXPECT_EQ(budget.taken(), 0u);
}

TEST(WriteBudget, WhoHasGoneHandsItOn) {
    WriteBudget budget(100);
    Taker first;
    first.take(budget, 100);
    Taker last;
    EXPECT_EQ(budget.take(100, [](const Room&) {}), nullptr);
    last.take(budget, 100);
    first.room = nullptr;
    EXPECT_NE(last.room, nullptr);
    EXPECT_EQ(budget.taken(), 100u);
}

TEST(WriteBudget, OutlivesWhoMadeIt) {
    Taker taker;
    auto budget = std::make_unique<WriteBudget>(100);
    taker.take(*budget, 50);
    budget.reset();
    taker.room = nullptr;
}

constexpr std::uint64_t kRoom = 1 << 20;

// With a server in front, over each transport.
class Writes : public testing::TestWithParam<Options> {
  protected:
    // The writes that have come to the storage since.
    std::vector<std::pair<Calls::Ticket, PutCall>> puts() {
        std::vector<std::pair<Calls::Ticket, PutCall>> found;
        for (auto& [ticket, call] : remote_->calls().take()) {
            found.emplace_back(ticket, std::get<PutCall>(call));
        }
        return found;
    }
    std::shared_ptr<Operation> set(const std::string& key, Bytes& value, double timeout_s = 60) {
        const auto operation = set_operation({{key, memory_of(value)}}, false, timeout_s);
        both_.submit(operation);
        return operation;
    }
    void store(Calls::Ticket ticket) {
        EXPECT_TRUE(remote_->calls().answer(ticket, Stored{true, "e"}));
    }
    bool wait_for_puts(std::size_t count) {
        return eventually([&] {
            for (auto& put : puts()) {
                puts_.push_back(std::move(put));
            }
            return puts_.size() >= count;
        });
    }
    std::uint64_t taken() { return remote_->writes().taken(); }

    const std::shared_ptr<CachedSource> remote_ =
        std::make_shared<CachedSource>(64 << 20, kBlock, CachedSource::kForEver, kRoom);
    Loopback both_{remote_, GetParam()};
    std::vector<std::pair<Calls::Ticket, PutCall>> puts_;
};

INSTANTIATE_TEST_SUITE_P(Transports, Writes, testing::Values(Options{}, Options{{"TLS", "tcp"}}),
                         [](const auto& one) {
                             return one.param.empty() ? "SharedMemory" : "Tcp";
                         });

// A slow store, and ten times what may be on its way there.
TEST_P(Writes, NoMoreOfThemThanThereIsRoomFor) {
    constexpr std::size_t kCount = 100;
    constexpr std::uint64_t kSize = kRoom / 10;
    std::vector<Bytes> values;
    std::vector<Set> sets;
    for (std::size_t i = 0; i < kCount; ++i) {
        values.push_back(pattern(kSize, static_cast<unsigned>(i)));
    }
    for (std::size_t i = 0; i < kCount; ++i) {
        sets.push_back({std::to_string(i), memory_of(values[i])});
    }
    const auto operation = set_operation(sets);
    both_.submit(operation);
    std::size_t stored = 0;
    std::size_t most = 0;
    while (stored < kCount) {
        // Ten have room, and all of these come; no other does before one of them is stored.
        const std::size_t expected = std::min<std::size_t>(10, kCount - stored);
        ASSERT_TRUE(wait_for_puts(expected));
        most = std::max(most, puts_.size());
        EXPECT_LE(taken(), kRoom);
        const auto [ticket, put] = std::move(puts_.back());
        puts_.pop_back();
        const Bytes& value = values[std::stoul(put.key)];
        ASSERT_EQ(std::memcmp(put.value->data(), value.data(), kSize), 0);
        store(ticket);
        ++stored;
    }
    EXPECT_EQ(most, 10u);
    finish(operation);
    EXPECT_TRUE(eventually([&] { return taken() == 0; }));
}

TEST_P(Writes, ALargeOneGoesAloneAndSmallOnesGoByIt) {
    Bytes large = pattern(40 << 20);  // in segments
    Bytes next = pattern(100'000, 1);
    Bytes small = pattern(1000, 2);
    const auto first = set("large", large);
    ASSERT_TRUE(wait_for_puts(1));
    const auto second = set("next", next);
    const auto third = set("small", small);
    ASSERT_TRUE(wait_for_puts(2));
    EXPECT_EQ(puts_[1].second.key, "small") << "it is in memory already";
    store(puts_[1].first);
    finish(third);
    EXPECT_FALSE(second->done());
    EXPECT_EQ(puts_.size(), 2u);
    store(puts_[0].first);
    finish(first);
    ASSERT_TRUE(wait_for_puts(3));
    store(puts_[2].first);
    finish(second);
    EXPECT_EQ(both_.get("large"), large);
    EXPECT_EQ(both_.get("next"), next);
}

TEST_P(Writes, WhatIsReadGoesByThem) {
    Bytes value = pattern(kRoom);
    const auto first = set("first", value);
    ASSERT_TRUE(wait_for_puts(1));
    const auto second = set("second", value);
    EXPECT_TRUE(eventually([&] { return both_.server->busy(); }));
    store(puts_[0].first);
    finish(first);
    ASSERT_TRUE(wait_for_puts(2));
    EXPECT_EQ(both_.get("first"), value);
    EXPECT_FALSE(second->done());
    store(puts_[1].first);
    finish(second);
}

// One that is cancelled leaves the others alone.
TEST_P(Writes, OneThatIsCancelledWhileItWaitsIsForgotten) {
    Bytes value = pattern(kRoom);
    const auto first = set("first", value);
    ASSERT_TRUE(wait_for_puts(1));
    const auto given_up = set("given up", value);
    const auto next = set("next", value);
    both_.client->cancel(both_.connection, given_up);
    ASSERT_TRUE(given_up->wait_for(kPatience));
    store(puts_[0].first);
    finish(first);
    ASSERT_TRUE(wait_for_puts(2));
    EXPECT_EQ(puts_[1].second.key, "next");
    store(puts_[1].first);
    finish(next);
    EXPECT_TRUE(eventually([&] { return taken() == 0; }));
}

// The memory is the caller's again in time, and the next one has the room.
TEST_P(Writes, OneThatWaitsTooLongIsGivenUp) {
    Bytes value = pattern(kRoom);
    const auto first = set("first", value);
    ASSERT_TRUE(wait_for_puts(1));
    const auto late = set("late", value, 0.2);
    ASSERT_TRUE(late->wait_for(kPatience));
    EXPECT_EQ(error_of([&] { late->check(); }), ErrorKind::change_timeout);
    both_.connection = both_.connect();  // the other one went with what stood still on it
    const auto next = set("next", value);
    store(puts_[0].first);
    ASSERT_TRUE(wait_for_puts(2));
    EXPECT_EQ(puts_[1].second.key, "next");
    store(puts_[1].first);
    finish(next);
    EXPECT_TRUE(eventually([&] { return taken() == 0; }));
    EXPECT_TRUE(eventually([&] { return !both_.server->busy(); }));
}

TEST_P(Writes, AClientThatGoesTakesWhatWaitsAlong) {
    Bytes value = pattern(kRoom);
    const auto first = set("first", value);
    ASSERT_TRUE(wait_for_puts(1));
    const auto second = set("second", value);
    both_.client->close(both_.connection);
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 0; }));
    EXPECT_EQ(taken(), kRoom) << "what is being stored is still there";
    store(puts_[0].first);
    EXPECT_TRUE(eventually([&] { return taken() == 0; }));
    both_.connection = both_.connect();
    const auto third = set("third", value);
    ASSERT_TRUE(wait_for_puts(2));
    EXPECT_EQ(puts_[1].second.key, "third");
    store(puts_[1].first);
    finish(third);
}

TEST_P(Writes, AServerGoesWithThemWaiting) {
    Bytes value = pattern(kRoom);
    const auto first = set("first", value);
    ASSERT_TRUE(wait_for_puts(1));
    const auto second = set("second", value);
    EXPECT_TRUE(eventually([&] { return both_.server->busy(); }));
    both_.server.reset();
    for (const auto& operation : {first, second}) {
        ASSERT_TRUE(operation->wait_for(kPatience));
        EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::change_lost);
    }
    store(puts_[0].first);
    EXPECT_EQ(taken(), 0u);
}

}  // namespace
}  // namespace ucxstore::test

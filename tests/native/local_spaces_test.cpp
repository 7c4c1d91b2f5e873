// Scratch spaces on the plane of one host: a client sees the memory of those whose names it knows.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "client/batch.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

std::string name_of(unsigned number) {
    std::string name = std::to_string(number);
    return std::string(kSpaceNameBytes - name.size(), 'a') + name;
}

std::string key_in(unsigned number, const std::string& rest) {
    return std::string(kScratchFolder) + name_of(number) + "/" + rest;
}

std::size_t count_descriptors() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

std::size_t count_mappings() {
    std::ifstream file("/proc/self/maps");
    std::string line;
    std::size_t count = 0;
    while (std::getline(file, line)) {
        count += line.find("memfd:ucxstore-") != std::string::npos;
    }
    return count;
}

class LocalSpaces : public testing::Test {
  protected:
    LocalSpaces() { link = connect(); }

    std::shared_ptr<LocalLink> connect() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        return client.attach(std::move(pair.other), token, "server");
    }
    static void run(LocalLink& with, const std::shared_ptr<Operation>& operation) {
        with.submit(operation);
        finish(operation);
    }
    void begin(unsigned number, std::uint64_t quota = kAny) { begin(*link, number, quota); }
    static void begin(LocalLink& with, unsigned number, std::uint64_t quota = kAny) {
        std::string body = strings({name_of(number)});
        put_u64(body, quota);
        put_u64(body, 3'600'000);
        run(with, call_operation(Op::begin_space, body));
    }
    void end(unsigned number) {
        run(*link, call_operation(Op::end_space, strings({name_of(number)})));
    }
    void set(const std::string& key, const Bytes& value) {
        Bytes copy = value;
        run(*link, set_operation({{key, memory_of(copy)}}));
    }
    std::optional<Bytes> get(const std::string& key) { return get(*link, key); }
    static std::optional<Bytes> get(LocalLink& with, const std::string& key) {
        const auto operation = get_operation({{key}});
        run(with, operation);
        if (operation->items[0].status == Status::missing) {
            return std::nullopt;
        }
        return reply_of(*operation);
    }
    bool seen(const std::string& key, const Bytes& value) {
        const std::uint64_t asked = counters->gets;
        EXPECT_EQ(get(key), value) << key;
        return counters->gets == asked;
    }
    std::shared_ptr<const Region> borrow(const std::string& key) {
        const auto operation = get_operation({{key}});
        operation->borrows = true;
        run(*link, operation);
        return operation->items[0].owned;
    }

    const std::shared_ptr<Quota> room = std::make_shared<Quota>(kAny);
    const std::shared_ptr<MemoryStorage> storage =
        std::make_shared<MemoryStorage>(room, false, shared::Shelf::make());
    const std::shared_ptr<Spaces> spaces = std::make_shared<Spaces>(room, true);
    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    LocalThread server{Service{Storages(std::shared_ptr<Storage>(storage), spaces), counters}, 0};
    LocalClient client;
    std::shared_ptr<LocalLink> link;
};

TEST_F(LocalSpaces, ValuesAreSeen) {
    begin(1);
    for (const std::size_t size : {0ul, 1ul, 5000ul, 100'000ul, 5'000'000ul}) {
        set(key_in(1, "k"), pattern(size));
        EXPECT_EQ(get(key_in(1, "k")), pattern(size));
        EXPECT_TRUE(seen(key_in(1, "k"), pattern(size))) << size;
        set(key_in(1, "k"), pattern(size, 3));
        EXPECT_EQ(get(key_in(1, "k")), pattern(size, 3));
    }
    EXPECT_EQ(get(key_in(1, "none")), std::nullopt);
    run(*link, make_calls(Op::remove, {key_in(1, "k")}, 60, nullptr));
    EXPECT_EQ(get(key_in(1, "k")), std::nullopt);
    EXPECT_GT(spaces->shelf_counts().gets_seen, 5u);
    EXPECT_EQ(storage->shelf()->counts().gets_seen, 0u);
}

TEST_F(LocalSpaces, BothKindsOfKeysInOneOperation) {
    begin(1);
    begin(2);
    set("a", pattern(1000, 1));
    set(key_in(1, "a"), pattern(1000, 2));
    set(key_in(2, "a"), pattern(1000, 3));
    for (int i = 0; i < 3; ++i) {
        const auto operation = get_operation(
            {{"a"}, {key_in(1, "a")}, {key_in(2, "a")}, {key_in(1, "b")}, {"b"}, {"a"}});
        run(*link, operation);
        EXPECT_EQ(reply_of(*operation, 0), pattern(1000, 1));
        EXPECT_EQ(reply_of(*operation, 1), pattern(1000, 2));
        EXPECT_EQ(reply_of(*operation, 2), pattern(1000, 3));
        EXPECT_EQ(operation->items[3].status, Status::missing);
        EXPECT_EQ(operation->items[4].status, Status::missing);
        EXPECT_EQ(reply_of(*operation, 5), pattern(1000, 1));
    }
    EXPECT_EQ(counters->gets, 6u + 2 + 2);
}

TEST_F(LocalSpaces, SpacesAreShownToThoseWhoAskThere) {
    begin(1);
    begin(2);
    set("main", pattern(1000));
    set(key_in(1, "secret"), pattern(1000, 1));
    const shared::Life life;
    Showings showings(Storages(std::shared_ptr<Storage>(storage), spaces), life.descriptor(),
                      nullptr);
    const auto shelf_of = [](const stream::OutMessage& message) {
        std::uint64_t shelf = 0;
        const std::size_t at = message.kind == stream::FrameKind::arena ? 8 : 0;
        std::memcpy(&shelf, message.header.data() + at, sizeof(shelf));
        return shelf;
    };
    const auto show = [&](const std::string& key, Storage& from) {
        PendingGet get({1, 0}, {.key = key, .selection = {}});
        EXPECT_EQ(get.open(from.find(key)), std::nullopt);
        std::vector<stream::OutMessage> messages;
        EXPECT_NE(showings.show(get, [](std::uint64_t, std::uint32_t) {}, messages), nullptr);
        return messages;
    };
    const auto main = show("main", *storage);
    ASSERT_EQ(main.size(), 3u);
    for (const auto& message : main) {
        EXPECT_EQ(shelf_of(message), local::kMainShelf);
        for (const Fd& descriptor : message.descriptors) {
            // None of this memory has ever held what is in a space.
            struct stat status{};
            fstat(descriptor.get(), &status);
            Bytes bytes(std::min<std::size_t>(static_cast<std::size_t>(status.st_size), 1 << 20));
            static_cast<void>(!pread(descriptor.get(), bytes.data(), bytes.size(), 0));
            const Bytes secret = pattern(1000, 1);
            EXPECT_TRUE(std::ranges::search(bytes, secret).empty());
        }
    }
    const auto space = show(key_in(1, "secret"), *spaces->find(name_of(1)));
    ASSERT_EQ(space.size(), 3u);
    for (const auto& message : space) {
        EXPECT_NE(shelf_of(message), local::kMainShelf);
    }
    EXPECT_EQ(space[0].header.substr(sizeof(local::ShelfHeader)), name_of(1));
    EXPECT_TRUE(show(key_in(1, "secret"), *spaces->find(name_of(1))).empty());
}

TEST_F(LocalSpaces, NothingIsSeenOnceOneHasEnded) {
    const auto other = connect();
    begin(1);
    set(key_in(1, "k"), pattern(3'000'000));
    EXPECT_EQ(get(key_in(1, "k")), pattern(3'000'000));
    EXPECT_EQ(get(*other, key_in(1, "k")), pattern(3'000'000));
    const std::size_t mapped = count_mappings();
    end(1);
    EXPECT_EQ(room->taken(), 0u);
    EXPECT_EQ(error_of([&] { get(key_in(1, "k")); }), ErrorKind::scratch_ended);
    EXPECT_EQ(error_of([&] { get(*other, key_in(1, "k")); }), ErrorKind::scratch_ended);
    EXPECT_TRUE(eventually([&] { return count_mappings() + 8 <= mapped; }))
        << mapped << " then, now " << count_mappings();
    EXPECT_EQ(spaces->shelf_counts().arena_bytes, 0u);
    EXPECT_EQ(spaces->shelf_counts().gets_seen, 2u);
    // One that begins under the same name is another one.
    begin(1);
    EXPECT_EQ(get(key_in(1, "k")), std::nullopt);
    set(key_in(1, "k"), pattern(10));
    EXPECT_EQ(get(key_in(1, "k")), pattern(10));
    EXPECT_TRUE(seen(key_in(1, "k"), pattern(10)));
}

TEST_F(LocalSpaces, WhatIsBorrowedOutlivesItsSpace) {
    begin(1, 10'000'000);
    set(key_in(1, "k"), pattern(3'000'000));
    EXPECT_EQ(get(key_in(1, "k")), pattern(3'000'000));
    auto borrowed = borrow(key_in(1, "k"));
    ASSERT_TRUE(borrowed->read_only());
    end(1);
    begin(2);
    for (int i = 0; i < 20; ++i) {
        set(key_in(2, "k"), Bytes(3'000'000, static_cast<std::byte>(i)));
    }
    EXPECT_EQ(Bytes(borrowed->data(), borrowed->data() + 3'000'000), pattern(3'000'000));
    end(2);
    EXPECT_EQ(room->taken(), 3'000'000u);
    EXPECT_GE(spaces->shelf_counts().arena_bytes_waiting, 3'000'000u);
    borrowed.reset();
    EXPECT_TRUE(eventually([&] { return room->taken() == 0; }));
    EXPECT_TRUE(eventually([&] { return spaces->shelf_counts().arena_bytes == 0; }));
}

TEST_F(LocalSpaces, WhatIsBorrowedTakesOfTheQuota) {
    begin(1, 10'000);
    set(key_in(1, "k"), pattern(6000));
    EXPECT_EQ(get(key_in(1, "k")), pattern(6000));
    auto borrowed = borrow(key_in(1, "k"));
    run(*link, make_calls(Op::remove, {key_in(1, "k")}, 60, nullptr));
    EXPECT_EQ(error_of([&] { set(key_in(1, "k"), pattern(6000)); }), ErrorKind::storage);
    borrowed.reset();
    set(key_in(1, "k"), pattern(6000));
    EXPECT_EQ(spaces->counts().at(0).bytes, 6000u);
}

// Whoever holds what he was shown in many spaces has it, and is sent the values of others.
TEST_F(LocalSpaces, WhatAClientHoldsOfForgottenSpacesIsBounded) {
    constexpr unsigned kSpaces = 100;
    std::vector<std::shared_ptr<Region>> held;
    for (unsigned i = 0; i < kSpaces; ++i) {
        begin(i);
        set(key_in(i, "k"), pattern(10'000, i));
        EXPECT_EQ(get(key_in(i, "k")), pattern(10'000, i));
        if (auto region = link->hold(key_in(i, "k"))) {
            held.push_back(std::move(region));
        }
    }
    EXPECT_GE(held.size(), local::kMaxSpaces);
    EXPECT_LE(held.size(), 4 * local::kMaxSpaces);
    for (unsigned i = 0; i < held.size(); ++i) {
        const Bytes value = pattern(10'000, i);
        EXPECT_EQ(std::memcmp(held[i]->data(), value.data(), value.size()), 0) << i;
    }
    held.clear();
    EXPECT_TRUE(eventually([&] {
        return get(key_in(kSpaces - 1, "k")) == pattern(10'000, kSpaces - 1) &&
               link->hold(key_in(kSpaces - 1, "k")) != nullptr;
    }));
}

TEST_F(LocalSpaces, AClientIsShownFewAtATime) {
    constexpr unsigned kSpaces = 60;
    for (unsigned i = 0; i < kSpaces; ++i) {
        begin(i);
        set(key_in(i, "k"), pattern(10'000, i));
    }
    const std::size_t descriptors = count_descriptors();
    const std::size_t mappings = count_mappings();
    EXPECT_EQ(get(key_in(0, "k")), pattern(10'000, 0));
    for (unsigned round = 0; round < 2; ++round) {
        for (unsigned i = 1; i < kSpaces; ++i) {
            EXPECT_EQ(get(key_in(i, "k")), pattern(10'000, i));
            EXPECT_TRUE(seen(key_in(i, "k"), pattern(10'000, i)));
            EXPECT_TRUE(seen(key_in(0, "k"), pattern(10'000, 0))) << "it is used all the time";
        }
    }
    const auto forgotten = [&] {
        // The server's tables of those that were forgotten go when it looks at them.
        for (unsigned i = 0; i < kSpaces; ++i) {
            spaces->find(name_of(i))->shelf()->sweep();
        }
        return true;
    };
    // In this process, both sides of each: two ends of a pipe, the pins twice, and the arena.
    EXPECT_TRUE(eventually([&] {
        return forgotten() && count_descriptors() <= descriptors + 5 * local::kMaxSpaces + 2;
    })) << descriptors
        << " before, now " << count_descriptors();
    // The three parts of the pins, and all of them, index, arena, reader_limit, life.
    EXPECT_TRUE(eventually([&] {
        return forgotten() && count_mappings() <= mappings + 8 * local::kMaxSpaces;
    })) << mappings
        << " before, now " << count_mappings();
    link->close();
    EXPECT_TRUE(eventually([&] { return server.sessions() == 0; }));
}

TEST_F(LocalSpaces, TheOthersOfManyAreNotShown) {
    const auto other = connect();  // as one client may not begin so many
    for (unsigned i = 0; i < Spaces::kMaxVisible + 10; ++i) {
        begin(i % 2 == 0 ? *link : *other, i, 10'000);
    }
    set(key_in(3, "k"), pattern(100));
    EXPECT_EQ(get(key_in(3, "k")), pattern(100));
    EXPECT_TRUE(seen(key_in(3, "k"), pattern(100)));
    const std::string last = key_in(Spaces::kMaxVisible + 5, "k");
    set(last, pattern(100));
    EXPECT_EQ(get(last), pattern(100));
    EXPECT_FALSE(seen(last, pattern(100)));
}

TEST_F(LocalSpaces, ReadersWhileTheyEnd) {
    for (unsigned round = 0; round < 25; ++round) {
        begin(round);
        for (int i = 0; i < 4; ++i) {
            set(key_in(round, std::to_string(i)), Bytes(50'000, static_cast<std::byte>(i + 1)));
        }
        std::atomic<int> reading = 0;
        std::atomic<int> wrong = 0;
        std::vector<std::thread> readers;
        for (int i = 0; i < 3; ++i) {
            readers.emplace_back([&, i] {
                const auto mine = connect();
                try {
                    for (int n = i;; ++n) {
                        const auto value = get(*mine, key_in(round, std::to_string(n % 4)));
                        const Bytes right(50'000, static_cast<std::byte>(n % 4 + 1));
                        wrong += value != right;
                        reading += n == i + 20;
                    }
                } catch (const Error& error) {
                    wrong += error.kind() != ErrorKind::scratch_ended;
                }
            });
        }
        EXPECT_TRUE(eventually([&] { return reading == 3; }));
        end(round);
        for (auto& reader : readers) {
            reader.join();
        }
        ASSERT_EQ(wrong, 0);
        EXPECT_TRUE(eventually([&] { return room->taken() == 0; }));
    }
}

}  // namespace
}  // namespace ucxstore::test

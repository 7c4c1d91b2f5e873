// The cache of a source on the plane of one host: which of its values a client sees, and for how
// long.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "cache/cache_shelf.hpp"
#include "cache/cached_source.hpp"
#include "client/batch.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "objects.hpp"
#include "remote_fixture.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

class LocalSource : public testing::Test {
  protected:
    struct How {
        std::uint64_t cache = 64 << 20;
        std::uint64_t block = 0;
        std::chrono::milliseconds freshness = CachedSource::kForEver;
    };

    LocalSource() : LocalSource(How()) {}
    explicit LocalSource(const How& how)
        : capacity(how.cache),
          source(std::make_shared<CachedSource>(how.cache, how.block, how.freshness,
                                                CachedSource::kWriteBytes, Cache::Clock::now,
                                                make_cache_shelf(how.cache))) {
        link = connect();
    }
    ~LocalSource() override {
        link.reset();
        client.close();
        server.close();
    }

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
    void set(const std::string& key, const Bytes& value) { set(*link, key, value); }
    static void set(LocalLink& with, const std::string& key, const Bytes& value) {
        Bytes copy = value;
        run(with, set_operation({{key, memory_of(copy)}}));
    }
    std::optional<Bytes> get(const std::string& key, Selection selection = {}) {
        return get(*link, key, std::move(selection));
    }
    static std::optional<Bytes> get(LocalLink& with, const std::string& key,
                                    Selection selection = {}) {
        const auto operation = get_operation({{key, std::move(selection)}});
        run(with, operation);
        if (operation->items[0].status == Status::missing) {
            return std::nullopt;
        }
        return reply_of(*operation);
    }
    // Reads the value, and says whether the server was not asked for it.
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

    const std::uint64_t capacity;
    const std::shared_ptr<CachedSource> source;
    Objects objects{source};
    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    LocalThread server{Service{Storages(source), counters}, 0};
    LocalClient client;
    std::shared_ptr<LocalLink> link;
};

TEST_F(LocalSource, WhatWasFetchedIsSeen) {
    for (const std::size_t size : {0ul, 1ul, 5000ul, 100'000ul, 5'000'000ul}) {
        const std::string key = "k" + std::to_string(size);
        const Bytes value = pattern(size);
        objects.set(key, value);
        EXPECT_FALSE(seen(key, value));
        EXPECT_TRUE(seen(key, value)) << size;
        EXPECT_TRUE(seen(key, value)) << size;
        EXPECT_EQ(objects.fetched(key), 1);
    }
    EXPECT_EQ(source->counters().misses, 5u);
    EXPECT_EQ(source->hits(), 10u);
}

// What gets take that wait for a source is bounded for all sessions of an origin together: the rest
// is not read from them.
TEST(WaitingGets, OfOneOriginAreBounded) {
    const auto source = std::make_shared<CachedSource>(64 << 20, 0);
    constexpr std::uint64_t kMost = 4 << 20;
    Limits limits = kLimits;
    Limit& limit = limits[static_cast<std::size_t>(Held::get_bytes)];
    limit.always = 128 << 10;
    limit.of_session = limit.of_origin = kMost;
    limit.of_all = 2 * kMost;
    const auto ledger = std::make_shared<Ledger>(nullptr, limits);
    LocalThread server{Service{.storages = Storages(source),
                               .counters = std::make_shared<Counters>(),
                               .ledger = ledger},
                       0};
    LocalClient client;
    const auto connect = [&](const char* origin) {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, {origin, {}, origin});
        return client.attach(std::move(pair.other), token, "server");
    };
    const auto ask = [&](const std::shared_ptr<LocalLink>& link, int count) {
        std::vector<Get> gets;
        for (int i = 0; i < count; ++i) {
            gets.push_back({"key" + std::to_string(i)});
        }
        auto operation = get_operation(gets);
        link->submit(operation);
        return operation;
    };
    std::vector<std::shared_ptr<LocalLink>> greedy;
    std::vector<std::shared_ptr<Operation>> asked;
    for (int i = 0; i < 8; ++i) {  // some 3 MB each
        greedy.push_back(connect("greedy"));
        asked.push_back(ask(greedy.back(), 8000));
    }
    EXPECT_TRUE(eventually([&] { return ledger->held(Held::get_bytes) > kMost / 2; }));
    const auto good = connect("good");
    const auto wanted = ask(good, 2000);
    std::size_t served = 0;
    EXPECT_TRUE(eventually([&] {
        for (const auto& [ticket, call] : source->calls().take()) {
            source->calls().answer(ticket, Missing{});
            ++served;
        }
        return wanted->done();
    }));
    EXPECT_NO_THROW(finish(wanted));
    EXPECT_FALSE(good->failed());
    EXPECT_LE(ledger->held(Held::get_bytes), 2 * kMost);
    for (const auto& link : greedy) {
        link->close();
    }
    good->close();
    EXPECT_TRUE(eventually([&] { return server.sessions() == 0; }));
    EXPECT_TRUE(eventually([&] { return ledger->held(Held::get_bytes) == 0; }));
}

// A server of one thread, with limits of the test, and clients of several origins.
class Charged {
  public:
    Charged(Storages storages, const Limits& limits)
        : ledger(std::make_shared<Ledger>(nullptr, limits)),
          server(Service{.storages = std::move(storages),
                         .counters = std::make_shared<Counters>(),
                         .ledger = ledger},
                 0) {}
    std::shared_ptr<LocalLink> connect(const char* origin = "one") {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, {origin, {}, origin});
        return client.attach(std::move(pair.other), token, "server");
    }

    const std::shared_ptr<Ledger> ledger;
    LocalThread server;
    LocalClient client;
};

Limit& limit_of(Limits& limits, Held what) { return limits[static_cast<std::size_t>(what)]; }

std::shared_ptr<Operation> get_many(const std::shared_ptr<LocalLink>& link, int count,
                                    const std::string& key = "key") {
    std::vector<Get> gets;
    for (int i = 0; i < count; ++i) {
        gets.push_back({key + std::to_string(i)});
    }
    auto operation = get_operation(gets);
    link->submit(operation);
    return operation;
}

// Until the source has answered, whoever asks and hangs up has asked for that much.
TEST(WaitingGets, CountUntilTheSourceHasAnswered) {
    const auto source = std::make_shared<CachedSource>(64 << 20, 0);
    Limits limits = kLimits;
    limit_of(limits, Held::fetches).of_session = 100;
    limit_of(limits, Held::fetches).of_origin = 150;
    Charged charged(Storages(source), limits);
    std::vector<Calls::Ticket> asked;
    const auto asked_of_source = [&](std::size_t count) {
        return eventually(
            [&] {
                for (const auto& [ticket, call] : source->calls().take()) {
                    asked.push_back(ticket);
                }
                return asked.size() >= count;
            },
            5s);
    };
    int round = 0;
    for (const std::size_t expected : {100u, 150u, 150u}) {
        const auto link = charged.connect();
        const auto gets = get_many(link, 200, std::to_string(++round) + "/");
        EXPECT_TRUE(asked_of_source(expected));
        link->close();
        EXPECT_TRUE(eventually([&] { return charged.server.sessions() == 0; }));
    }
    EXPECT_EQ(asked.size(), 150u);
    EXPECT_EQ(charged.ledger->held(Held::fetches), 150u);
    // A session that had no room goes on by itself.
    const auto link = charged.connect();
    const auto gets = get_many(link, 20);
    EXPECT_TRUE(eventually([&] {
        (void)asked_of_source(1);
        for (const Calls::Ticket ticket : std::exchange(asked, {})) {
            source->calls().answer(ticket, Missing{});
        }
        return gets->done();
    }));
    EXPECT_NO_THROW(finish(gets));
    link->close();
    EXPECT_TRUE(eventually([&] { return charged.ledger->held(Held::fetches) == 0; }));
}

// More values than may wait at a time, none of which the cache keeps: all come in the end.
TEST(WaitingGets, ValuesThatHaveNoRoomAreFetchedAgain) {
    constexpr std::uint64_t kSize = 1 << 20;
    constexpr int kCount = 24;
    const auto source = std::make_shared<CachedSource>(kSize / 2, 0);
    Limits limits = kLimits;
    limit_of(limits, Held::fetched_bytes).of_session = 3 * kSize;
    Charged charged(Storages(source), limits);
    const auto link = charged.connect();
    const auto gets = get_many(link, kCount);
    int fetched = 0;
    EXPECT_TRUE(eventually([&] {
        for (const auto& [ticket, call] : source->calls().take()) {
            ++fetched;
            const Bytes value = pattern(
                kSize, static_cast<unsigned>(std::stoi(std::get<GetCall>(call).key.substr(3))));
            source->calls().answer(ticket, SourceObject{region(value), "e"});
        }
        EXPECT_LE(charged.ledger->held(Held::fetched_bytes), 8 * kSize);
        return gets->done();
    }));
    EXPECT_NO_THROW(finish(gets));
    for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(reply_of(*gets, static_cast<std::size_t>(i)),
                  pattern(kSize, static_cast<unsigned>(i)));
    }
    EXPECT_LE(fetched, 3 * kCount);
    link->close();
    EXPECT_TRUE(eventually([&] { return charged.ledger->held(Held::fetched_bytes) == 0; }));
}

// Where there is no room for a table of pins, a value is sent.
TEST(WaitingGets, AValueIsSentWhereNoTableOfPinsIsLeft) {
    const auto storage =
        std::make_shared<MemoryStorage>(Quota::of_memory(64 << 20), false, shared::Shelf::make());
    const Bytes value = pattern(100'000);
    const auto incoming = storage->receive("key0", value.size());
    std::ranges::copy(value, incoming->data());
    incoming->commit(false);
    Limits limits = kLimits;
    limit_of(limits, Held::pin_tables).of_origin = 1;
    Charged charged(Storages(storage), limits);
    const auto one = charged.connect();
    const auto other = charged.connect();
    for (const auto& link : {one, other, one}) {
        const auto gets = get_many(link, 1);
        EXPECT_NO_THROW(finish(gets));
        EXPECT_EQ(reply_of(*gets), value);
    }
    EXPECT_EQ(charged.ledger->held(Held::pin_tables), 1u);
    one->close();
    other->close();
}

TEST_F(LocalSource, PartsOfIt) {
    using Kind = Range::Kind;
    const Bytes value = pattern(10'000);
    objects.set("k", value);
    const Selection part = std::vector<Range>{{Kind::range, 100, 200}};
    const Bytes expected(value.begin() + 100, value.begin() + 200);
    EXPECT_EQ(get("k", part), expected);
    const std::uint64_t asked = counters->gets;
    EXPECT_EQ(get("k", part), expected);
    EXPECT_EQ(counters->gets, asked);
}

TEST_F(LocalSource, PartsOfLargeValuesAreSentUntilAllIsWanted) {
    using Kind = Range::Kind;
    const Bytes value = pattern(20'000'000);
    set("k", value);
    const Selection part = std::vector<Range>{{Kind::range, 100, 200}};
    const Bytes expected(value.begin() + 100, value.begin() + 200);
    EXPECT_EQ(get("k", part), expected);
    EXPECT_EQ(get("k", part), expected);
    EXPECT_EQ(source->shelf()->counts().arenas, 0u);
    EXPECT_EQ(get("k"), value);
    const std::uint64_t asked = counters->gets;
    EXPECT_EQ(get("k", part), expected);
    EXPECT_EQ(counters->gets, asked);
}

TEST_F(LocalSource, AnotherClientSeesItAfterItHasAskedOnce) {
    const Bytes value = pattern(100'000);
    objects.set("k", value);
    objects.set("other", value);
    const auto other = connect();
    EXPECT_EQ(get("k"), value);
    EXPECT_EQ(get("other"), value);
    EXPECT_EQ(get(*other, "other"), value);
    const std::uint64_t asked = counters->gets;
    EXPECT_EQ(get(*other, "k"), value);
    EXPECT_EQ(counters->gets, asked);
    EXPECT_EQ(source->hits(), 2u);
    EXPECT_EQ(source->counters().misses, 2u);
}

TEST_F(LocalSource, WhatIsWrittenIsReadAtOnce) {
    const auto other = connect();
    for (const std::size_t size : {10ul, 100'000ul, 3'000'000ul}) {
        for (unsigned seed = 0; seed < 5; ++seed) {
            const Bytes value = pattern(size, seed);
            set(*other, "k", value);
            EXPECT_EQ(objects.get("k"), value);
            // The source is asked for it until a little after the answer.
            EXPECT_TRUE(eventually([&] { return source->believes("k"); }));
            EXPECT_FALSE(seen("k", value)) << "it replaces one that was seen";
            EXPECT_TRUE(seen("k", value)) << size;
        }
    }
    EXPECT_EQ(objects.fetched("k"), 0);
}

TEST_F(LocalSource, WhatIsRemovedIsGone) {
    for (const auto& remove : {make_calls(Op::remove, {"a/k"}, 60, nullptr),
                               make_call(Op::remove_prefix, "a/", strings({"a/"}), 60, nullptr)}) {
        objects.set("a/k", pattern(1000));
        EXPECT_EQ(get("a/k"), pattern(1000));
        EXPECT_TRUE(seen("a/k", pattern(1000)));
        run(*link, remove);
        EXPECT_EQ(get("a/k"), std::nullopt);
    }
}

TEST_F(LocalSource, TheOldValueIsSeenUntilTheNewOneIsWritten) {
    set("k", pattern(1000, 1));
    EXPECT_EQ(get("k"), pattern(1000, 1));
    for (unsigned round = 2; round < 100; ++round) {
        Bytes value = pattern(1000 + 500 * round, round);
        const auto writing = set_operation({{"k", memory_of(value)}});
        link->submit(writing);
        const auto meanwhile = get("k");
        finish(writing);
        EXPECT_TRUE(meanwhile == value ||
                    meanwhile == pattern(1000 + (round > 2 ? 500 * (round - 1) : 0), round - 1));
        EXPECT_EQ(get("k"), value);
    }
}

TEST_F(LocalSource, BorrowedValuesOutliveTheirEviction) {
    const Bytes value = pattern(30'000'000);
    objects.set("k", value);
    auto borrowed = borrow("k");
    ASSERT_TRUE(borrowed->read_only());
    for (int i = 0; i < 40; ++i) {
        const std::string key = std::to_string(i);
        objects.set(key, pattern(4'000'000, static_cast<unsigned>(i)));
        EXPECT_EQ(get(key), pattern(4'000'000, static_cast<unsigned>(i)));
        ASSERT_LE(source->cached_bytes(), capacity);
    }
    EXPECT_FALSE(seen("k", value));  // it was evicted
    EXPECT_EQ(Bytes(borrowed->data(), borrowed->data() + borrowed->size()), value);
    source->shelf()->sweep();
    EXPECT_GE(source->shelf()->waiting(), 30'000'000u);
    borrowed.reset();
    source->shelf()->sweep();
    EXPECT_EQ(source->shelf()->waiting(), 0u);
}

TEST_F(LocalSource, WhereAllIsPinnedValuesAreSent) {
    std::vector<std::shared_ptr<const Region>> borrowed;
    for (int i = 0; i < 30; ++i) {
        const std::string key = std::to_string(i);
        const Bytes value = pattern(4'000'000, static_cast<unsigned>(i));
        objects.set(key, value);
        EXPECT_EQ(get(key), value);
        borrowed.push_back(borrow(key));
        ASSERT_LE(source->cached_bytes(), capacity);
        ASSERT_LE(source->shelf()->counts().arena_bytes_used, capacity + capacity / 4 + (8 << 20));
    }
    for (unsigned i = 0; i < 30; ++i) {
        EXPECT_EQ(Bytes(borrowed[i]->data(), borrowed[i]->data() + 4'000'000),
                  pattern(4'000'000, i));
    }
    borrowed.clear();
    objects.set("last", pattern(4'000'000));
    EXPECT_EQ(get("last"), pattern(4'000'000));
    EXPECT_TRUE(seen("last", pattern(4'000'000)));
}

class LittleCache : public LocalSource {
  protected:
    LittleCache() : LocalSource({.cache = 1 << 20}) {}
};

TEST_F(LittleCache, WhatAClientSeesOftenStays) {
    const Bytes value = pattern(20'000);
    objects.set("read", value);
    objects.set("unread", value);
    EXPECT_EQ(get("unread"), value);
    EXPECT_EQ(get("read"), value);
    EXPECT_TRUE(seen("read", value));
    for (unsigned i = 0; i < 300; ++i) {
        const std::string key = std::to_string(i);
        objects.set(key, pattern(20'000, i));
        EXPECT_EQ(get(key), pattern(20'000, i));
        ASSERT_TRUE(seen("read", value)) << i;
        ASSERT_LE(source->cached_bytes(), capacity);
    }
    EXPECT_EQ(objects.fetched("read"), 1);
    EXPECT_FALSE(seen("unread", value));
    EXPECT_EQ(objects.fetched("unread"), 2);
}

TEST_F(LittleCache, WhatIsTooLargeForItIsSent) {
    const Bytes value = pattern(3'000'000);
    set("k", value);
    EXPECT_EQ(get("k"), value);
    EXPECT_FALSE(seen("k", value));
    EXPECT_EQ(source->shelf()->counts().arenas, 0u);
}

class WithBlocks : public LocalSource {
  protected:
    WithBlocks() : LocalSource({.block = 64 << 10}) {}
};

TEST_F(WithBlocks, BlocksAreSentAndWholeValuesSeen) {
    using Kind = Range::Kind;
    const Bytes value = pattern(1'000'000);
    objects.set("k", value);
    const Selection part = std::vector<Range>{{Kind::range, 700'000, 700'100}};
    const Bytes expected(value.begin() + 700'000, value.begin() + 700'100);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(get("k", part), expected);
    }
    EXPECT_EQ(counters->gets, 3u);
    EXPECT_EQ(source->shelf()->counts().arenas, 0u);
    objects.set("whole", value);
    EXPECT_EQ(get("whole"), value);
    EXPECT_TRUE(seen("whole", value));
}

class ShortlyFresh : public LocalSource {
  protected:
    ShortlyFresh() : LocalSource({.block = 64 << 10, .freshness = 300ms}) {}
};

TEST_F(ShortlyFresh, ItIsAskedForWhenTheTimeIsOver) {
    const Bytes value = pattern(1000);
    objects.set("k", value);
    EXPECT_EQ(get("k"), value);
    EXPECT_TRUE(eventually([&] { return !seen("k", value); }));
    EXPECT_TRUE(eventually([&] { return objects.heads > 0; }));
    EXPECT_EQ(objects.fetched("k"), 1);
    EXPECT_TRUE(eventually([&] { return seen("k", value); })) << "for as long again";
    objects.set("k", pattern(1000, 9));
    EXPECT_TRUE(eventually([&] { return get("k") == pattern(1000, 9); }));
    EXPECT_TRUE(eventually([&] { return seen("k", pattern(1000, 9)); }));
    run(*link, make_calls(Op::remove, {"k"}, 60, nullptr));
    EXPECT_EQ(get("k"), std::nullopt);
}

class UnbelievedSource : public LocalSource {
  protected:
    UnbelievedSource() : LocalSource({.block = 64 << 10, .freshness = 0ms}) {}
};

TEST_F(UnbelievedSource, TheSourceIsAskedEachTime) {
    const Bytes value = pattern(1000);
    set("k", value);
    for (int i = 0; i < 3; ++i) {
        EXPECT_FALSE(seen("k", value));
    }
    objects.set("k", pattern(1000, 9));
    EXPECT_FALSE(seen("k", pattern(1000, 9)));
    EXPECT_EQ(source->shelf()->counts().arenas, 0u);
}

// Whoever reads after a write was acknowledged reads that value or a newer one, whatever is
// evicted, expires or is fetched again meanwhile.
class Busy : public LocalSource, public testing::WithParamInterface<int> {
  protected:
    Busy()
        : LocalSource({.cache = 400'000,
                       .block = 16 << 10,
                       .freshness = GetParam() == 0 ? CachedSource::kForEver
                                                    : std::chrono::milliseconds(GetParam())}) {}
};

TEST_P(Busy, NoReadReturnsAnOlderValueThanBefore) {
    static constexpr std::size_t kSizes[] = {100, 3000, 70'000, 150'000};
    static constexpr int kKeys = 6;
    const auto value_of = [](unsigned round) {
        Bytes value(kSizes[round % 4], static_cast<std::byte>(round % 251));
        std::memcpy(value.data(), &round, sizeof(round));
        return value;
    };
    const auto round_of = [](const Bytes& value) {
        unsigned round = 0;
        std::memcpy(&round, value.data(), sizeof(round));
        return round;
    };
    std::atomic<unsigned> written[kKeys] = {};
    for (int key = 0; key < kKeys; ++key) {
        set(std::to_string(key), value_of(0));
    }
    std::atomic<bool> stop = false;
    std::atomic<std::uint64_t> wrong = 0;
    std::atomic<std::uint64_t> reads = 0;
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&, i] {
            const auto mine = connect();
            for (int n = i; !stop; ++n) {
                const int key = n % kKeys;
                const unsigned before = written[key];
                const Bytes value = get(*mine, std::to_string(key)).value();
                const unsigned round = round_of(value);
                wrong += round < before || value != value_of(round);
                ++reads;
            }
        });
    }
    for (unsigned round = 1; round < 600; ++round) {
        const int key = static_cast<int>(round) % kKeys;
        set(std::to_string(key), value_of(round));
        written[key] = round;
        // What is being sent to each reader counts, too, and is not waited for.
        EXPECT_LE(source->cached_bytes(), capacity + 3 * 160'000);
    }
    stop = true;
    for (auto& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(reads, 100u);
}

INSTANTIATE_TEST_SUITE_P(Each, Busy, testing::Values(0, 1, 20));

}  // namespace
}  // namespace ucxstore::test

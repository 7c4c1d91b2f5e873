// What a client and a server do together when all goes well, or is refused in good order.
#include "loopback.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "storage/directory.hpp"
#include "ucx/port.hpp"

namespace ucxstore::test {
namespace {

const Options kTransports[] = {{}, {{"TLS", "tcp"}}};

class LoopbackTest : public testing::TestWithParam<Options> {
  protected:
    // The kind of failure that the operation ends with.
    std::optional<ErrorKind> failure(const std::shared_ptr<Operation>& operation) {
        return error_of([&] { both_.run(operation); });
    }

    Loopback both_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(All, LoopbackTest, testing::ValuesIn(kTransports),
                         [](const auto& info) { return info.param.empty() ? "Default" : "Tcp"; });

TEST(PortTest, GivesItsWorkerOnce) {
    const auto client = std::make_shared<Client>(Options{}, false);
    const Port<Client> unused(client, client->open());
    Port<Client> port(client, client->open());
    EXPECT_NE(port.address(), unused.address());
    client->discard(port.take());
    EXPECT_EQ(error_of([&] { port.take(); }), ErrorKind::argument);
    EXPECT_EQ(error_of([&] { port.address(); }), ErrorKind::argument);
}

Bytes part(const Bytes& value, std::size_t begin, std::size_t end) {
    return {value.begin() + static_cast<std::ptrdiff_t>(begin),
            value.begin() + static_cast<std::ptrdiff_t>(end)};
}

TEST_P(LoopbackTest, ChoosesLanes) {
    const auto lanes = both_.client->lanes(both_.connection);
    ASSERT_FALSE(lanes.empty());
    if (!GetParam().empty()) {
        EXPECT_TRUE(lanes[0].starts_with("tcp")) << lanes[0];
        EXPECT_FALSE(both_.connection->worker().shares_memory);
    }
}

// About every threshold between ways to send, both ways.
TEST_P(LoopbackTest, WholeValuesOfAnySize) {
    for (const std::size_t size :
         {0u, 1u, 4095u, 4096u, 4097u, 8192u, 65'536u, 1u << 20, 5'000'001u}) {
        const Bytes value = pattern(size);
        const std::string key = "values/" + std::to_string(size);
        both_.set(key, value);
        EXPECT_EQ(both_.get(key), value) << size;
        EXPECT_EQ(both_.stat(key), size);
    }
}

// A directory has no memory to receive into.
TEST_P(LoopbackTest, ValuesThatGoIntoFiles) {
    const TemporaryDirectory directory;
    Loopback both(GetParam(), false, std::make_shared<DirectoryStorage>(directory.path() / "root"));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{4096}, std::size_t{4097}, std::size_t{65'536},
          std::size_t{5'000'001}, std::size_t{kSegmentBytes + 100}}) {
        const Bytes value = pattern(size);
        both.set("k", value);
        EXPECT_TRUE(both.get("k") == value) << size;
    }
    std::vector<Bytes> values;
    std::vector<Set> sets;
    for (unsigned i = 0; i < 40; ++i) {
        values.push_back(pattern(300'000, i));
    }
    for (unsigned i = 0; i < values.size(); ++i) {
        sets.push_back({"many/" + std::to_string(i), memory_of(values[i])});
    }
    both.run(set_operation(sets));
    for (const Set& one : sets) {
        EXPECT_EQ(both.stat(one.key), 300'000u);
    }
    EXPECT_TRUE(both.get("many/39") == values[39]);
}

TEST_P(LoopbackTest, AValueOfMoreThanOneSegment) {
    Bytes value = pattern(kSegmentBytes + 100);
    both_.set("big", value);
    Bytes out(value.size());
    both_.run(get_operation({{.key = "big", .memory = memory_of(out)}}));
    EXPECT_TRUE(out == value);
    const std::size_t end = value.size() - 50;
    EXPECT_EQ(both_.get("big", std::vector<Range>{{Range::Kind::range, end - 100, end}}),
              part(value, end - 100, end));
}

TEST_P(LoopbackTest, ByteRanges) {
    for (const std::size_t size : {100u, 100'000u}) {
        const Bytes value = pattern(size);
        both_.set("k", value);
        const auto get = [&](std::vector<Range> ranges) {
            return both_.get("k", std::move(ranges));
        };
        EXPECT_EQ(get({{Range::Kind::range, 10, 90}}), part(value, 10, 90));
        EXPECT_EQ(get({{Range::Kind::range, 10, ~0ull}}), part(value, 10, size));
        EXPECT_EQ(get({{Range::Kind::offset, size - 5, 0}}), part(value, size - 5, size));
        EXPECT_EQ(get({{Range::Kind::suffix, 7, 0}}), part(value, size - 7, size));
        EXPECT_EQ(get({{Range::Kind::offset, size, 0}}), Bytes());
        EXPECT_EQ(get({{Range::Kind::range, 50, 10}}), Bytes());
        Bytes joined = part(value, size - 2, size);
        const Bytes rest = part(value, 0, size - 1);
        joined.insert(joined.end(), rest.begin(), rest.end());
        EXPECT_EQ(get({{Range::Kind::suffix, 2, 0},
                       {Range::Kind::range, 5, 5},
                       {Range::Kind::range, 0, size - 1}}),
                  joined);
    }
}

TEST_P(LoopbackTest, MissingKeysAreToldFromEmptyValues) {
    both_.set("empty", {});
    EXPECT_EQ(both_.get("empty"), Bytes());
    EXPECT_EQ(both_.get("missing"), std::nullopt);
    EXPECT_EQ(both_.stat("empty"), 0u);
    EXPECT_EQ(both_.stat("missing"), kAnySize);
    Bytes out(10, std::byte{9});
    const auto into = get_operation(
        {{.key = "missing", .memory = memory_of(out)}, {.key = "empty", .memory = memory_of(out)}});
    both_.run(into);
    EXPECT_EQ(into->items[0].status, Status::missing);
    EXPECT_EQ(into->items[1].size, 0u);
    EXPECT_EQ(out, Bytes(10, std::byte{9}));
}

// Boxes of a chunk into boxes of an array, against loops.
TEST_P(LoopbackTest, BoxesOfAChunkIntoAnArray) {
    std::mt19937 random(4);
    const auto draw = [&](std::uint64_t low, std::uint64_t high) {
        return low + random() % (high - low + 1);
    };
    for (int round = 0; round < 60; ++round) {
        const std::uint64_t item = 1ull << draw(0, 3);
        const std::uint64_t chunk[2] = {draw(1, 40), draw(1, 60)};
        const std::uint64_t count[2] = {draw(1, chunk[0]), draw(1, chunk[1])};
        const std::uint64_t from[2] = {draw(0, chunk[0] - count[0]), draw(0, chunk[1] - count[1])};
        const Bytes value = pattern(chunk[0] * chunk[1] * item, static_cast<unsigned>(round));
        both_.set("chunk", value);

        // C order, transposed, or backwards along the rows, with gaps; of the exact size, so that a
        // byte beyond it is a sanitizer's.
        const std::uint64_t order = draw(0, 2);
        const std::uint64_t gap = draw(0, 2) * item;
        Bytes out(count[0] * count[1] * (item + gap));
        const auto step = static_cast<std::int64_t>(item + gap);
        std::int64_t strides[2] = {static_cast<std::int64_t>(count[1]) * step, step};
        std::int64_t offset = 0;
        if (order == 1) {
            strides[0] = step;
            strides[1] = static_cast<std::int64_t>(count[0]) * step;
        } else if (order == 2) {
            offset = static_cast<std::int64_t>(count[1] - 1) * step;
            strides[1] = -step;
        }
        const std::vector<Dim> out_dims = {{count[0], strides[0]}, {count[1], strides[1]}};
        const std::vector<Dim> chunk_dims = {{count[0], static_cast<std::int64_t>(chunk[1] * item)},
                                             {count[1], static_cast<std::int64_t>(item)}};
        const auto start = static_cast<std::int64_t>((from[0] * chunk[1] + from[1]) * item);
        both_.run(
            get_operation({{.key = "chunk",
                            .selection = Layout::strided(start, item, chunk_dims),
                            .memory = Memory{out.data(), Layout::strided(offset, item, out_dims)},
                            .exact = true,
                            .expected = value.size()}}));

        Bytes expected(out.size());
        for (std::uint64_t i = 0; i < count[0]; ++i) {
            for (std::uint64_t j = 0; j < count[1]; ++j) {
                const std::int64_t to = offset + static_cast<std::int64_t>(i) * strides[0] +
                                        static_cast<std::int64_t>(j) * strides[1];
                const std::uint64_t at = ((from[0] + i) * chunk[1] + from[1] + j) * item;
                std::copy_n(value.data() + at, item, expected.data() + to);
            }
        }
        ASSERT_TRUE(out == expected) << "round " << round;
    }
}

TEST_P(LoopbackTest, ManyPiecesOnBothSides) {
    // More runs than one segment's descriptors hold.
    constexpr std::uint64_t kRuns = kSegmentPieces + 1000;
    const Bytes value = pattern(kRuns * 4);
    both_.set("k", value);
    Bytes out(kRuns * 3);
    const std::vector<Dim> every_fourth = {{kRuns, 4}};
    const std::vector<Dim> every_third = {{kRuns, 3}};
    both_.run(get_operation({{.key = "k",
                              .selection = Layout::strided(1, 1, every_fourth),
                              .memory = Memory{out.data(), Layout::strided(2, 1, every_third)},
                              .exact = true}}));
    for (std::uint64_t i = 0; i < kRuns; ++i) {
        ASSERT_EQ(out[i * 3 + 2], value[i * 4 + 1]);
        ASSERT_EQ(out[i * 3], std::byte{0});
    }
}

TEST_P(LoopbackTest, StridedValuesAreSent) {
    for (const std::uint64_t rows : {5u, 500u}) {
        Bytes array = pattern(rows * 300);
        const std::vector<Dim> dims = {{rows, 300}, {100, 1}};
        both_.run(set_operation({{"k", {array.data(), Layout::strided(50, 1, dims)}}}));
        Bytes expected;
        for (std::uint64_t row = 0; row < rows; ++row) {
            const Bytes line = part(array, row * 300 + 50, row * 300 + 150);
            expected.insert(expected.end(), line.begin(), line.end());
        }
        EXPECT_EQ(both_.get("k"), expected);
    }
}

TEST_P(LoopbackTest, FiveThousandSmallItemsInOneOperation) {
    constexpr std::size_t kItems = 5000;
    std::vector<Bytes> values;
    std::vector<Set> sets;
    std::vector<Get> gets;
    for (std::size_t i = 0; i < kItems; ++i) {
        values.push_back(pattern(i % 97, static_cast<unsigned>(i)));
    }
    for (std::size_t i = 0; i < kItems; ++i) {
        const std::string key = "small/" + std::to_string(i);
        sets.push_back({key, memory_of(values[i])});
        gets.push_back({.key = key});
    }
    both_.run(set_operation(sets));
    const auto got = get_operation(gets);
    both_.run(got);
    for (std::size_t i = 0; i < kItems; ++i) {
        ASSERT_EQ(reply_of(*got, i), values[i]);
    }
    EXPECT_EQ(both_.counters.sets, kItems);
    EXPECT_EQ(both_.counters.gets, kItems);
}

TEST_P(LoopbackTest, NothingToDoIsDoneAtOnce) {
    both_.run(get_operation({}));
    both_.run(set_operation({}));
}

TEST_P(LoopbackTest, ManyThreadsAtOnce) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 6; ++thread) {
        threads.emplace_back([&, thread] {
            for (unsigned i = 0; i < 25; ++i) {
                const std::string key = std::to_string(thread) + "/" + std::to_string(i);
                const Bytes value = pattern(i * 977, thread);
                both_.set(key, value);
                wrong += both_.get(key) == value ? 0 : 1;
                wrong += both_.connection->failed() ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
}

TEST_P(LoopbackTest, SeveralClientsAtOnce) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&, thread] {
            Client client(GetParam(), false);
            const auto connection = both_.connect(client);
            Bytes value = pattern(300'000, thread);
            const std::string key = std::to_string(thread);
            for (int i = 0; i < 5; ++i) {
                const auto set = set_operation({{key, memory_of(value)}});
                client.submit(connection, set);
                finish(set);
                const auto get = get_operation({{.key = key}});
                client.submit(connection, get);
                finish(get);
                wrong += reply_of(*get) == value ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 1; }));
    EXPECT_EQ(both_.counters.sessions_lost, 0u);
}

TEST_P(LoopbackTest, AReaderMeanwhileGetsAWholeValue) {
    constexpr std::size_t kSize = 200'000;
    both_.set("k", Bytes(kSize, std::byte{0}));
    std::atomic<bool> stop = false;
    std::atomic<int> torn = 0;
    std::thread reader([&] {
        while (!stop) {
            const Bytes value = *both_.get("k");
            torn += std::ranges::count(value, value[0]) == std::ptrdiff_t{kSize} ? 0 : 1;
        }
    });
    for (int i = 1; i < 30; ++i) {
        both_.set("k", Bytes(kSize, std::byte(i)));
    }
    stop = true;
    reader.join();
    EXPECT_EQ(torn, 0);
}

TEST_P(LoopbackTest, IfAbsentTellsWhatWasWritten) {
    Bytes first = pattern(10'000, 1);
    Bytes second = pattern(20'000, 2);
    both_.run(set_operation({{"a", memory_of(first)}}, true));
    const auto operation =
        set_operation({{"a", memory_of(second)}, {"b", memory_of(second)}}, true);
    both_.run(operation);
    EXPECT_EQ(operation->items[0].status, Status::kept);
    EXPECT_EQ(operation->items[1].status, Status::ok);
    EXPECT_EQ(both_.get("a"), first);
    EXPECT_EQ(both_.get("b"), second);
}

TEST_P(LoopbackTest, RemoveListAndMeasure) {
    for (const std::string key : {"a/b", "a/c", "d"}) {
        both_.set(key, pattern(10));
    }
    both_.run(call_operation(Op::remove, strings({"a/b", "never"}), 2));
    EXPECT_EQ(both_.get("a/b"), std::nullopt);

    std::string query = strings({""});
    put_u8(query, 1);
    put_string(query, "");
    const auto list = call_operation(Op::list, query);
    both_.run(list);
    const Bytes page = reply_of(*list);
    Reader names(page);
    EXPECT_EQ(names.string(), "");
    EXPECT_EQ(names.u64(), 0u);  // folders that may not be opened
    EXPECT_EQ(names.string(), "a");
    EXPECT_EQ(names.string(), "d");
    EXPECT_TRUE(names.done());

    std::string measure = strings({""});
    put_u8(measure, 0);
    const auto measured = call_operation(Op::measure, measure);
    both_.run(measured);
    const Bytes sums = reply_of(*measured);
    Reader reader(sums);
    EXPECT_EQ(reader.u64(), 2u);
    EXPECT_EQ(reader.u64(), 20u);
    EXPECT_TRUE(reader.done());

    const auto removed = call_operation(Op::remove_prefix, strings({"a/"}));
    both_.run(removed);
    const Bytes count = reply_of(*removed);
    EXPECT_EQ(Reader(count).u64(), 1u);
}

TEST_P(LoopbackTest, RefusalsNameTheirCauseAndHarmNothing) {
    for (const std::size_t size : {100u, 100'000u}) {
        const Bytes value = pattern(size);
        both_.set("k", value);
        Bytes small(size - 1, std::byte{7});
        EXPECT_EQ(failure(get_operation({{.key = "k", .memory = memory_of(small)}})),
                  ErrorKind::value_too_large);
        EXPECT_EQ(small, Bytes(size - 1, std::byte{7}));
        EXPECT_EQ(failure(get_operation({{.key = "k", .expected = size + 1}})),
                  ErrorKind::chunk_size);
        EXPECT_EQ(failure(get_operation({{.key = "k", .selection = Layout::contiguous(size, 1)}})),
                  ErrorKind::argument);
        const std::vector<Dim> again = {{size + 1, 0}};
        EXPECT_EQ(failure(get_operation({{.key = "k", .selection = Layout::strided(0, 1, again)}})),
                  ErrorKind::argument);
        EXPECT_EQ(failure(get_operation({{.key = "../k"}})), ErrorKind::invalid_key);
        Bytes any = pattern(size);
        EXPECT_EQ(failure(set_operation({{"a//b", memory_of(any)}})), ErrorKind::invalid_key);
        EXPECT_EQ(failure(call_operation(Op::stat, strings({"ok", "a/../b"}), 2)),
                  ErrorKind::invalid_key);
        EXPECT_EQ(failure(call_operation(Op::remove, strings({"/k"}))), ErrorKind::invalid_key);
        EXPECT_EQ(both_.get("k"), value);
        EXPECT_FALSE(both_.connection->failed());
    }
}

TEST_P(LoopbackTest, AFailedItemFailsItsOperationOnceTheOthersAreIn) {
    const Bytes value = pattern(50'000);
    both_.set("k", value);
    Bytes out(value.size());
    const auto operation = get_operation({{.key = "k", .memory = memory_of(out)},
                                          {.key = ""},
                                          {.key = "missing"},
                                          {.key = "k", .memory = memory_of(out)}});
    EXPECT_EQ(failure(operation), ErrorKind::invalid_key);
    EXPECT_EQ(operation->active, 0u);
}

// Both near and far, by our own copies: of more than kLargeBytes, so that both ends receive past
// the caches.
TEST(SharedMemory, RowsOfAnArrayAreCopiedByUs) {
    constexpr std::uint64_t kRows = 6000;
    constexpr std::uint64_t kRow = 2000;
    constexpr std::uint64_t kStride = 2101;  // at any alignment
    const std::vector<Dim> dims = {{kRows, kStride}};
    const Layout rows = Layout::strided(50, kRow, dims);
    Loopback both(Options{{"TLS", "posix"}});
    Worker& worker = both.connection->worker();
    ASSERT_TRUE(worker.shares_memory);
    for (const bool far : {false, true}) {
        while (worker.distance.is_far() != far) {
            worker.distance.note(1 << 20,
                                 far ? std::chrono::seconds(1) : std::chrono::nanoseconds(1));
        }
        Bytes array = pattern(kRows * kStride, far);
        both.run(set_operation({{"k", {array.data(), rows}}}));
        Bytes out(array.size());
        both.run(get_operation({{.key = "k", .memory = Memory{out.data(), rows}}}));
        Bytes expected(array.size());
        for (std::uint64_t row = 0; row < kRows; ++row) {
            std::copy_n(array.data() + 50 + row * kStride, kRow,
                        expected.data() + 50 + row * kStride);
        }
        EXPECT_TRUE(out == expected) << "far: " << far;
    }
}

TEST(ReadOnly, NothingIsChanged) {
    Loopback both({}, true);
    const auto incoming = both.storage->receive("d/k", 1);
    incoming->data()[0] = std::byte{1};
    incoming->commit(false);
    Bytes value = pattern(100'000);
    Bytes small = pattern(10);
    for (const auto& operation :
         {set_operation({{"d/k", memory_of(value)}}), set_operation({{"new", memory_of(small)}}),
          call_operation(Op::remove, strings({"d/k"})),
          call_operation(Op::remove_prefix, strings({"d/"}))}) {
        EXPECT_EQ(error_of([&] { both.run(operation); }), ErrorKind::read_only);
    }
    EXPECT_EQ(both.get("d/k"), Bytes(1, std::byte{1}));
    EXPECT_EQ(both.get("new"), std::nullopt);
}

}  // namespace
}  // namespace ucxstore::test

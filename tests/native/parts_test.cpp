// Parts of values into parts of memory, values of many parts, and values that change between two
// requests.
#include <gtest/gtest.h>

#include <random>

#include "loopback.hpp"
#include "storage/directory.hpp"

namespace ucxstore::test {
namespace {

struct Setup {
    const char* name;
    Options options;
    bool directory;
};

const Setup kSetups[] = {{"Default", {}, false},
                         {"Tcp", {{"TLS", "tcp"}}, false},
                         {"DefaultDirectory", {}, true},
                         {"TcpDirectory", {{"TLS", "tcp"}}, true}};

class PartsTest : public testing::TestWithParam<Setup> {
  protected:
    std::optional<ErrorKind> failure(const std::shared_ptr<Operation>& operation) {
        return error_of([&] { both_.run(operation); });
    }
    // What get_operation() asks for, into `out`.
    Get part(Layout source, Bytes& out, Layout target) {
        return {.key = "k",
                .selection = std::move(source),
                .memory = Memory(out.data(), std::move(target)),
                .exact = true};
    }
    std::uint64_t version(const std::string& key) {
        const auto operation = get_operation({{.key = key}});
        both_.run(operation);
        return operation->items[0].version;
    }

    TemporaryDirectory directory_;
    Loopback both_{GetParam().options, false,
                   GetParam().directory
                       ? std::make_shared<DirectoryStorage>(directory_.path() / "root")
                       : nullptr};
};

INSTANTIATE_TEST_SUITE_P(All, PartsTest, testing::ValuesIn(kSetups),
                         [](const auto& info) { return info.param.name; });

// Of each size of a reply on both sides of every threshold between ways to send, in pieces of any
// size; against loops.
TEST_P(PartsTest, RunsFromAnywhereToAnywhere) {
    const Bytes value = pattern(3'000'000);
    both_.set("k", value);
    std::mt19937 random(1);
    for (const std::uint64_t run : {1, 4, 16, 63, 700}) {
        for (const std::size_t count : {1u, 2u, 64u, 1000u, 4095u, 4096u, 16'384u}) {
            std::vector<std::int64_t> sources(count);
            std::vector<std::int64_t> targets(count);
            for (std::size_t i = 0; i < count; ++i) {
                sources[i] = static_cast<std::int64_t>(random() % (value.size() - run + 1));
                targets[i] = static_cast<std::int64_t>(i * (run + i % 2));
            }
            std::shuffle(targets.begin(), targets.end(), random);
            Bytes out(count * (run + 1));
            Bytes expected = out;
            for (std::size_t i = 0; i < count; ++i) {
                std::copy_n(value.begin() + sources[i], run, expected.begin() + targets[i]);
            }
            both_.run(get_operation({part(Layout::gathered(sources, run, {}), out,
                                          Layout::gathered(targets, run, {}))}));
            ASSERT_TRUE(out == expected) << count << " runs of " << run;
        }
    }
}

// As above, but the boxes have axes, and both sides cut their bytes in different places.
TEST_P(PartsTest, BoxesAtManyOffsets) {
    const Bytes value = pattern(1'000'000);
    both_.set("k", value);
    const std::vector<Dim> rows = {{6, 1000}, {5, 24}};
    std::vector<std::int64_t> offsets(800);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] = static_cast<std::int64_t>(i * 7919 % 990'000);
    }
    Bytes expected;
    for (const std::int64_t offset : offsets) {
        for (std::int64_t row = 0; row < 6; ++row) {
            for (std::int64_t item = 0; item < 5; ++item) {
                const auto at = value.begin() + offset + row * 1000 + item * 24;
                expected.insert(expected.end(), at, at + 8);
            }
        }
    }
    Bytes out(2 * expected.size());
    const std::vector<Dim> every_other = {{expected.size() / 16, 32}};
    both_.run(get_operation(
        {part(Layout::gathered(offsets, 8, rows), out, Layout::strided(0, 16, every_other))}));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out[i / 16 * 32 + i % 16], expected[i]);
    }
}

// More than one segment, which are cut in the middle of runs; with bytes that come again and again,
// so that a reply may be larger than the value.
TEST_P(PartsTest, MoreThanTheValueHas) {
    const Bytes value = pattern(5000);
    both_.set("k", value);
    const std::vector<std::int64_t> offsets(16'384, 3);
    Bytes out(4900 * offsets.size());
    both_.run(get_operation(
        {part(Layout::gathered(offsets, 4900, {}), out, Layout::contiguous(out.size()))}));
    for (std::size_t i = 0; i < out.size(); i += 4900) {
        ASSERT_TRUE(std::equal(value.begin() + 3, value.begin() + 4903,
                               out.begin() + static_cast<std::ptrdiff_t>(i)));
    }
}

TEST_P(PartsTest, APartOutsideItsValueIsRefused) {
    both_.set("k", pattern(1000));
    Bytes out(20, std::byte{7});
    const std::vector<Dim> again = {{1001, 0}};
    const Layout bad[] = {Layout::gathered({0, 991}, 10, {}), Layout::gathered({1000, 0}, 10, {}),
                          Layout::gathered({0, INT64_MAX}, 10, {})};
    for (const Layout& source : bad) {
        EXPECT_EQ(failure(get_operation({part(source, out, Layout::contiguous(20))})),
                  ErrorKind::argument);
    }
    Bytes much(2 * 1001);
    EXPECT_EQ(failure(get_operation({part(Layout::gathered({0, 1}, 1, again), much,
                                          Layout::contiguous(much.size()))})),
              ErrorKind::argument)
        << "a box larger than the value";
    EXPECT_EQ(out, Bytes(20, std::byte{7}));
    EXPECT_FALSE(both_.connection->failed());
}

TEST_P(PartsTest, TheSameKeyMayComeManyTimes) {
    const Bytes value = pattern(100'000);
    both_.set("k", value);
    Bytes out(value.size());
    std::vector<Get> gets;
    for (std::size_t i = 0; i < 1000; ++i) {
        const auto at = static_cast<std::int64_t>(i * 100);
        gets.push_back(part(Layout::gathered({at + 50, at}, 50, {}), out,
                            Layout::gathered({at + 50, at}, 50, {})));
    }
    both_.run(get_operation(gets));
    EXPECT_EQ(out, value);
}

TEST_P(PartsTest, ValuesOfManyPartsAreJoined) {
    for (const std::size_t count : {0u, 1u, 3u, 100u, 70'000u}) {
        std::vector<Bytes> arrays;
        std::vector<Memory::Part> parts;
        Bytes expected;
        for (std::size_t i = 0; i < count; ++i) {
            arrays.push_back(pattern(i % 61 * 2, static_cast<unsigned>(i)));
        }
        for (std::size_t i = 0; i < count; ++i) {
            Bytes& array = arrays[i];
            if (i % 3 == 0) {
                parts.push_back({array.data(), Layout::contiguous(array.size())});
                expected.insert(expected.end(), array.begin(), array.end());
                continue;
            }
            const std::vector<Dim> every_other = {{array.size() / 2, 2}};
            parts.push_back({array.data(), Layout::strided(0, 1, every_other)});
            for (std::size_t j = 0; j < array.size(); j += 2) {
                expected.push_back(array[j]);
            }
        }
        both_.run(set_operation({{"k", Memory(parts)}}));
        EXPECT_TRUE(both_.get("k") == expected) << count;
    }
}

TEST_P(PartsTest, AShardOfTwoSegmentsAndAnIndex) {
    Bytes large = pattern(kSegmentBytes + 1000);
    Bytes index = pattern(20, 1);
    both_.run(set_operation({{"k", Memory({{large.data(), Layout::contiguous(large.size())},
                                           {index.data(), Layout::contiguous(index.size())}})}}));
    Bytes expected = large;
    expected.insert(expected.end(), index.begin(), index.end());
    EXPECT_TRUE(both_.get("k") == expected);
}

TEST_P(PartsTest, AValueThatIsTheSameIsRead) {
    const Bytes value = pattern(10'000);
    both_.set("k", value);
    const std::uint64_t first = version("k");
    EXPECT_NE(first, kAnyVersion);
    EXPECT_EQ(version("k"), first);
    Bytes out(value.size());
    const auto operation =
        get_operation({{.key = "k", .memory = memory_of(out), .exact = true, .version = first}});
    both_.run(operation);
    EXPECT_EQ(operation->items[0].status, Status::ok);
    EXPECT_EQ(out, value);
}

TEST_P(PartsTest, AValueThatHasChangedIsNot) {
    for (const std::size_t size : {10u, 100'000u}) {
        both_.set("k", pattern(size));
        const std::uint64_t first = version("k");
        both_.set("k", pattern(size, 1));
        Bytes out(2 * size, std::byte{7});
        // Neither the size nor the part that was right for another value matters.
        const auto operation = get_operation({{.key = "k",
                                               .selection = Layout::contiguous(2 * size),
                                               .memory = memory_of(out),
                                               .exact = true,
                                               .expected = 2 * size,
                                               .version = first},
                                              {.key = "missing", .version = first},
                                              {.key = "k"}});
        both_.run(operation);
        EXPECT_EQ(operation->items[0].status, Status::changed);
        EXPECT_EQ(operation->items[0].value_size, size);
        EXPECT_EQ(operation->items[0].version, version("k"));
        EXPECT_NE(operation->items[0].version, first);
        EXPECT_EQ(operation->items[1].status, Status::missing);
        EXPECT_EQ(reply_of(*operation, 2), pattern(size, 1));
        EXPECT_EQ(out, Bytes(2 * size, std::byte{7}));
    }
}

}  // namespace
}  // namespace ucxstore::test

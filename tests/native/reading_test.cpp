// Values that are read from their files as they are sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <random>
#include <span>

#include "base/status.hpp"
#include "sessions/pending_get.hpp"
#include "storage/directory.hpp"
#include "support.hpp"
#include "ucx_server/unread_bytes.hpp"

namespace ucxstore::test {
namespace {

namespace fs = std::filesystem;

class ReadingTest : public testing::Test {
  protected:
    void put(const std::string& key, const Bytes& bytes) {
        const auto incoming = storage_.receive(key, bytes.size());
        incoming->write(0, bytes);
        incoming->commit(false);
    }
    PendingGet open(const std::string& key, Selection selection = {},
                    std::uint64_t segment = kSegmentBytes) {
        PendingGet get({1, 0}, {.key = key, .selection = std::move(selection), .segment = segment});
        EXPECT_FALSE(get.open(storage_.find(key)));
        get.read_as_sent();
        return get;
    }

    const TemporaryDirectory directory_;
    const fs::path root_ = directory_.path() / "root";
    DirectoryStorage storage_{root_.string()};
};

// As they are asked for fragment by fragment: in order mostly, and again.
TEST_F(ReadingTest, FragmentsOfRunsAreRead) {
    const Bytes value = pattern(2'000'000);
    put("k", value);
    const auto region = storage_.find("k");
    ASSERT_TRUE(region->unread());
    std::mt19937 random(11);
    std::vector<ucp_dt_iov_t> runs;
    Bytes expected;
    for (std::size_t at = 0; at + 50'000 < value.size(); at += 50'000 + random() % 1000) {
        const std::size_t length = 1 + random() % 50'000;
        runs.push_back({region->data() + at, length});
        const auto bytes = std::span(value).subspan(at, length);
        expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    UnreadBytes unread(region, runs);
    const auto fragment = [&](std::size_t offset, std::size_t length) {
        Bytes got(length);
        unread.read(offset, got);
        const auto bytes = std::span(expected).subspan(offset, length);
        EXPECT_TRUE(std::ranges::equal(got, bytes)) << offset << " " << length;
    };
    for (std::size_t offset = 0; offset < expected.size();) {
        const std::size_t length =
            std::min<std::size_t>(expected.size() - offset, 1 + random() % 100'000);
        fragment(offset, length);
        offset += length;
    }
    fragment(1000, 70'000);
    fragment(0, expected.size());
    fs::resize_file(root_ / "k", 1'000'000);
    fragment(0, 300'000);
    Bytes all(expected.size());
    EXPECT_EQ(error_of([&] { unread.read(0, all); }), ErrorKind::storage);
}

TEST_F(ReadingTest, TheLastBytesWaitUntilTheRestIsRead) {
    for (const std::uint64_t size : {512ull << 10, 5'000'001ull, 16ull << 20, 50'000'000ull}) {
        put("k", Bytes(size));
        PendingGet get = open("k");
        const auto reading = get.reading();
        ASSERT_NE(reading, nullptr);
        Segments segments;
        std::uint64_t sent = 0;
        while (!get.done()) {
            ASSERT_FALSE(get.waits());
            const Segment segment = get.next();
            const ReplyHeader& header = segment.header;
            EXPECT_TRUE(
                segments.add(header.reply_size, header.segment, header.offset, header.length));
            EXPECT_LE(header.length, kSegmentBytes);
            sent += header.length;
            const bool last = sent == size;
            EXPECT_EQ(segment.reading, last ? nullptr : reading);
            EXPECT_EQ(segment.owner != nullptr, last);
            EXPECT_EQ(last, header.length <= PendingGet::kHeldBack);
            reading->messages = 1;
            EXPECT_EQ(get.waits(), size - sent <= PendingGet::kHeldBack);
            reading->messages = 0;
        }
        EXPECT_EQ(sent, size);
    }
}

TEST_F(ReadingTest, AFailureWaitsForWhatIsInFlightOfItsValue) {
    put("k", Bytes(50'000'000));
    PendingGet get = open("k");
    EXPECT_EQ(get.next().reading, get.reading());
    get.reading()->messages = 1;
    EXPECT_FALSE(get.waits());
    get.reading()->failure = std::make_exception_ptr(Error(ErrorKind::storage, "bad"));
    EXPECT_TRUE(get.waits());
    get.reading()->messages = 0;
    EXPECT_FALSE(get.waits());
    EXPECT_EQ(error_of([&] { get.next(); }), ErrorKind::storage);
}

TEST_F(ReadingTest, WhatIsSmallOrFinelyCutIsReadBeforeItIsSent) {
    put("small", Bytes(500'000));
    put("large", Bytes(4'000'000));
    const Dim short_rows[] = {{2000, 2000}};
    const Dim long_rows[] = {{200, 20'000}};
    EXPECT_EQ(open("small").reading(), nullptr);
    EXPECT_NE(open("large").reading(), nullptr);
    EXPECT_EQ(open("large", {}, 100'000).reading(), nullptr);
    EXPECT_EQ(open("large", Layout::strided(0, 1000, short_rows)).reading(), nullptr);
    EXPECT_NE(open("large", Layout::strided(0, 10'000, long_rows)).reading(), nullptr);
}

}  // namespace
}  // namespace ucxstore::test

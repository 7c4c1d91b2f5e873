#include "protocol/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "base/status.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::string encode(const GetItem& item) {
    std::string body;
    put_get_item(body, item);
    return body;
}

void expect_same(const GetItem& got, const GetItem& expected) {
    EXPECT_EQ(got.key, expected.key);
    EXPECT_EQ(got.limit, expected.limit);
    EXPECT_EQ(got.segment, expected.segment);
    EXPECT_EQ(got.expected, expected.expected);
    EXPECT_EQ(got.version, expected.version);
    ASSERT_EQ(got.selection.index(), expected.selection.index());
    if (const auto* box = std::get_if<Layout>(&expected.selection)) {
        const auto& other = std::get<Layout>(got.selection);
        EXPECT_EQ(other.offset(), box->offset());
        EXPECT_EQ(other.offsets(), box->offsets());
        EXPECT_EQ(other.run(), box->run());
        EXPECT_EQ(other.size(), box->size());
        ASSERT_EQ(other.dims().size(), box->dims().size());
        for (std::size_t i = 0; i < box->dims().size(); ++i) {
            EXPECT_EQ(other.dims()[i].count, box->dims()[i].count);
            EXPECT_EQ(other.dims()[i].stride, box->dims()[i].stride);
        }
        return;
    }
    const auto& ranges = std::get<std::vector<Range>>(expected.selection);
    const auto& others = std::get<std::vector<Range>>(got.selection);
    ASSERT_EQ(others.size(), ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        EXPECT_EQ(others[i].kind, ranges[i].kind);
        EXPECT_EQ(others[i].a, ranges[i].a);
        EXPECT_EQ(others[i].b, ranges[i].b);
    }
}

GetItem random_item(std::mt19937_64& random) {
    GetItem item;
    item.key.resize(random() % 40);
    for (char& letter : item.key) {
        letter = static_cast<char>(random());
    }
    item.limit = random();
    item.segment = kMinSegmentBytes + random() / 2;
    item.expected = random();
    item.version = random();
    if (random() % 2 == 0) {
        std::vector<Range> ranges(random() % 5);
        for (Range& range : ranges) {
            range = {static_cast<Range::Kind>(1 + random() % 3), random(), random()};
        }
        item.selection = std::move(ranges);
    } else {
        std::vector<Dim> dims(random() % 5);
        for (Dim& dim : dims) {
            dim = {random() % 100, static_cast<std::int64_t>(random() % 100'000)};
        }
        std::vector<std::int64_t> offsets(1 + random() % 2 * (random() % 50));
        for (std::int64_t& offset : offsets) {
            offset = static_cast<std::int64_t>(random() % 1000);
        }
        item.selection = Layout::gathered(offsets, 1 + random() % 16, dims);
    }
    return item;
}

TEST(Wire, ItemsComeBackAsTheyWere) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 2000; ++round) {
        const std::vector<GetItem> items = {random_item(random), random_item(random)};
        const std::string body = encode(items[0]) + encode(items[1]);
        Reader reader(bytes(body));
        expect_same(reader.get_item(), items[0]);
        expect_same(reader.get_item(), items[1]);
        ASSERT_TRUE(reader.done());
    }
}

TEST(Wire, NumbersAndStringsComeBackAsTheyWere) {
    std::string body;
    put_u8(body, 200);
    put_u64(body, ~0ull - 1);
    put_string(body, std::string("a\0b", 3));
    put_string(body, "");
    Reader reader(bytes(body));
    EXPECT_EQ(reader.u8(), 200);
    EXPECT_EQ(reader.u64(), ~0ull - 1);
    EXPECT_EQ(reader.string(), std::string("a\0b", 3));
    EXPECT_EQ(reader.string(), "");
    EXPECT_TRUE(reader.done());
}

TEST(Wire, QueriesComeBackAsTheyWere) {
    std::string body;
    put_string(body, "a/");
    put_u8(body, 1);
    put_string(body, "a/b");
    const ListQuery query = Reader(bytes(body)).list_query();
    EXPECT_EQ(query.prefix, "a/");
    EXPECT_TRUE(query.delimited);
    EXPECT_EQ(query.cursor, "a/b");
}

TEST(Wire, EveryTruncationIsAProtocolError) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 200; ++round) {
        const std::string body = encode(random_item(random));
        for (std::size_t size = 0; size < body.size(); ++size) {
            const std::string cut = body.substr(0, size);
            ASSERT_EQ(error_of([&] { Reader(bytes(cut)).get_item(); }), ErrorKind::protocol);
        }
    }
}

// Whatever was decoded must be safe to use: nothing in it may overflow or reach outside a value.
void use(const GetItem& item, std::uint64_t extent) {
    if (const auto* box = std::get_if<Layout>(&item.selection)) {
        if (!box->fits(extent) || box->box_size() > extent) {
            return;
        }
        auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
        std::vector<ucp_dt_iov_t> pieces;
        box->pieces(base, 0, box->size(), pieces);
        for (const ucp_dt_iov_t& piece : pieces) {
            const auto begin = static_cast<std::byte*>(piece.buffer) - base;
            ASSERT_GE(begin, 0);
            ASSERT_LE(static_cast<std::uint64_t>(begin) + piece.length, extent);
        }
        return;
    }
    for (const Range& range : std::get<std::vector<Range>>(item.selection)) {
        const Span span = resolve(range, extent);
        ASSERT_LE(span.begin, extent);
        ASSERT_LE(span.length, extent - span.begin);
    }
}

void mutate(std::string& body, std::mt19937_64& random) {
    static constexpr std::uint64_t kExtremes[] = {
        0,          1,          2,         0x7fff'ffff'ffff'ffff, 0x8000'0000'0000'0000, ~0ull,
        1ull << 62, 1ull << 61, 1ull << 32};
    for (std::uint64_t changes = 1 + random() % 4; changes > 0 && !body.empty(); --changes) {
        const std::size_t at = random() % body.size();
        switch (random() % 4) {
            case 0:
                body[at] = static_cast<char>(random());
                break;
            case 1:
                body.resize(at);
                break;
            case 2: {
                std::string number;
                put_u64(number, kExtremes[random() % std::size(kExtremes)]);
                body.replace(at, std::min(number.size(), body.size() - at), number);
                break;
            }
            default:
                body.insert(at, body.substr(at / 2, random() % 24));
        }
    }
}

TEST(WireFuzz, WhateverArrivesIsDecodedOrAProtocolError) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 60'000; ++round) {
        std::string body;
        if (round % 4 == 0) {
            body.resize(random() % 200);
            std::generate(body.begin(), body.end(), [&] { return static_cast<char>(random()); });
        } else {
            body = encode(random_item(random)) + encode(random_item(random));
            mutate(body, random);
        }
        try {
            Reader reader(bytes(body));
            while (!reader.done()) {
                use(reader.get_item(), random() % 4000);
            }
        } catch (const Error& error) {
            ASSERT_EQ(error.kind(), ErrorKind::protocol);
        }
        try {
            Reader(bytes(body)).list_query();
        } catch (const Error& error) {
            ASSERT_EQ(error.kind(), ErrorKind::protocol);
        }
    }
}

using RawDims = std::vector<std::array<std::uint64_t, 2>>;

// Of an item, all but the selection.
std::string raw_item() {
    std::string body;
    put_string(body, "key");
    put_u64(body, kAnySize);
    put_u64(body, kSegmentBytes);
    put_u64(body, kAnySize);
    put_u64(body, kAnyVersion);
    return body;
}

void put_raw_box(std::string& body, std::uint64_t run, const RawDims& dims) {
    put_u64(body, run);
    put_u8(body, static_cast<std::uint8_t>(dims.size()));
    for (const auto& [count, stride] : dims) {
        put_u64(body, count);
        put_u64(body, stride);
    }
}

// A box with these dims, as only a peer would write it.
std::string raw_box(std::uint64_t offset, std::uint64_t run, const RawDims& dims) {
    std::string body = raw_item();
    put_u8(body, 1);
    put_u64(body, offset);
    put_raw_box(body, run, dims);
    return body;
}

// The same at many offsets, of which as many are said to come as `count`.
std::string raw_gathered(std::uint32_t count, const std::vector<std::uint64_t>& offsets,
                         std::uint64_t run, const RawDims& dims) {
    std::string body = raw_item();
    put_u8(body, 2);
    body.append(reinterpret_cast<const char*>(&count), sizeof(count));
    for (const std::uint64_t offset : offsets) {
        put_u64(body, offset);
    }
    put_raw_box(body, run, dims);
    return body;
}

bool refused(const std::string& body) {
    return error_of([&] { Reader(bytes(body)).get_item(); }) == ErrorKind::protocol;
}

TEST(Wire, GatheredBoxesThatNoMemoryHoldsAreRefused) {
    EXPECT_FALSE(refused(raw_gathered(3, {0, 100, 7}, 4, {{3, 8}})));
    EXPECT_FALSE(refused(raw_gathered(1, {0}, 4, {{3, 8}})));
    EXPECT_TRUE(refused(raw_gathered(3, {0, 1ull << 63, 7}, 4, {{3, 8}})));
    EXPECT_TRUE(refused(raw_gathered(2, {0, 7}, 1ull << 62, {})));
    EXPECT_TRUE(refused(raw_gathered(2, {0, 7}, 1ull << 61, {})));
    EXPECT_TRUE(refused(raw_gathered(2, {0, 7}, 4, {{1ull << 58, 0}, {2, 0}})));
    EXPECT_TRUE(refused(raw_gathered(2, {0, 7}, 4, {{3, ~0ull}})));
    EXPECT_TRUE(refused(raw_gathered(2, {0, 7}, 1, RawDims(65, {1, 1}))));
}

TEST(Wire, AListOfOffsetsMustBeThereAndNotTooLong) {
    EXPECT_TRUE(refused(raw_gathered(0, {}, 4, {})));
    EXPECT_TRUE(refused(raw_gathered(4, {1, 2}, 4, {})));
    EXPECT_TRUE(refused(raw_gathered(~0u, {1, 2}, 4, {})));
    EXPECT_TRUE(refused(raw_gathered(1u << 29, {1, 2}, 4, {})));  // 2^32 bytes
    const auto most = static_cast<std::uint32_t>(kMaxOffsets);
    EXPECT_FALSE(refused(raw_gathered(most, std::vector<std::uint64_t>(most), 4, {})));
    EXPECT_TRUE(refused(raw_gathered(most + 1, std::vector<std::uint64_t>(most + 1), 4, {})));
}

TEST(Wire, BoxesThatNoMemoryHoldsAreRefused) {
    EXPECT_FALSE(refused(raw_box(0, 4, {{3, 8}})));
    EXPECT_TRUE(refused(raw_box(1ull << 63, 4, {})));
    EXPECT_TRUE(refused(raw_box(0, 1ull << 62, {})));
    EXPECT_TRUE(refused(raw_box(0, 4, {{3, ~0ull}})));  // backwards
    EXPECT_TRUE(refused(raw_box(0, 4, {{1ull << 61, 0}})));
    EXPECT_TRUE(refused(raw_box(0, 1, {{1ull << 32, 0}, {1ull << 32, 0}})));
    EXPECT_TRUE(refused(raw_box(0, 1, {{1ull << 32, 1ull << 31}})));
    EXPECT_TRUE(refused(raw_box(0, 1, {{0, 1}, {1ull << 40, 1ull << 40}})));
    EXPECT_TRUE(refused(raw_box(0, 1, RawDims(65, {1, 1}))));
}

GetItem item_of(std::vector<Range> ranges) {
    GetItem item;
    item.key = "k";
    item.selection = std::move(ranges);
    return item;
}

TEST(Wire, SegmentsOfNothingAreRefused) {
    GetItem item = item_of({});
    item.segment = kMinSegmentBytes - 1;
    const std::string body = encode(item);
    EXPECT_EQ(error_of([&] { Reader(bytes(body)).get_item(); }), ErrorKind::protocol);
}

TEST(Wire, SegmentsHaveFewPieces) {
    EXPECT_EQ(segment_bytes(Layout::contiguous(1ull << 40)), kSegmentBytes);
    for (const std::uint64_t run : {1, 3, 4, 100, 4096, 1 << 20}) {
        const std::vector<Dim> rows = {{1'000'000, 1 << 21}};
        const std::uint64_t segment = segment_bytes(Layout::strided(0, run, rows));
        EXPECT_TRUE(std::has_single_bit(segment));
        EXPECT_GE(segment, kMinSegmentBytes);
        EXPECT_LE(segment / run, kSegmentPieces);
    }
}

TEST(Segments, EachIsCountedOnceInAnyOrder) {
    constexpr std::uint64_t kStep = kMinSegmentBytes;
    std::mt19937_64 random(4);
    for (const std::uint64_t total : std::vector<std::uint64_t>{0, 1, kStep - 1, kStep, kStep + 1,
                                                                10 * kStep, 10 * kStep + 7}) {
        std::vector<std::uint64_t> offsets;
        for (std::uint64_t offset = 0; offset == 0 || offset < total; offset += kStep) {
            offsets.push_back(offset);
        }
        std::shuffle(offsets.begin(), offsets.end(), random);
        Segments segments;
        EXPECT_FALSE(segments.begun());
        for (const std::uint64_t offset : offsets) {
            const std::uint64_t length = std::min(kStep, total - offset);
            ASSERT_TRUE(segments.add(total, kStep, offset, length));
            ASSERT_FALSE(segments.add(total, kStep, offset, length)) << "twice";
            ASSERT_TRUE(segments.begun());
        }
        EXPECT_EQ(segments.total(), total);
        EXPECT_FALSE(segments.add(total, kStep, offsets.size() * kStep, 0)) << "past the end";
    }
}

TEST(Segments, WhatDoesNotFitIsRefused) {
    constexpr std::uint64_t kStep = kMinSegmentBytes;
    const auto taken = [](std::uint64_t total, std::uint64_t segment, std::uint64_t offset,
                          std::uint64_t length) {
        return Segments().add(total, segment, offset, length);
    };
    EXPECT_TRUE(taken(10 * kStep, kStep, 3 * kStep, kStep));
    EXPECT_FALSE(taken(10, 0, 0, 10));
    EXPECT_FALSE(taken(10, kStep - 1, 0, 10));
    EXPECT_FALSE(taken(10 * kStep, kStep, 1, kStep));
    EXPECT_FALSE(taken(10 * kStep, kStep, kStep, kStep - 1));
    EXPECT_FALSE(taken(10 * kStep, kStep, 10 * kStep, 0));
    EXPECT_FALSE(taken(10 * kStep, kStep, ~0ull - kStep + 1, kStep));
    EXPECT_FALSE(taken(protocol::kMaxValueBytes + 1, 1ull << 40, 0, 1ull << 40));
    EXPECT_FALSE(taken(~0ull, ~0ull, 0, ~0ull));
    EXPECT_FALSE(taken(protocol::kMaxValueBytes, kStep, 0, kStep)) << "too many";

    Segments segments;
    ASSERT_TRUE(segments.add(10 * kStep, kStep, 0, kStep));
    EXPECT_FALSE(segments.add(9 * kStep, kStep, kStep, kStep)) << "of another total";
    EXPECT_FALSE(segments.add(10 * kStep, 2 * kStep, 2 * kStep, 2 * kStep)) << "of another cut";
}

TEST(Wire, UnknownKindsAreRefused) {
    std::string selection = encode(item_of({}));
    selection[selection.size() - 3] = 7;
    EXPECT_EQ(error_of([&] { Reader(bytes(selection)).get_item(); }), ErrorKind::protocol);
    for (const std::uint8_t kind : {0, 4, 255}) {
        const std::string range = encode(item_of({{static_cast<Range::Kind>(kind), 0, 1}}));
        EXPECT_EQ(error_of([&] { Reader(bytes(range)).get_item(); }), ErrorKind::protocol);
    }
}

TEST(Wire, AHeaderMustBeWhole) {
    const std::string raw(sizeof(ValueHeader), 'x');
    EXPECT_TRUE(read_header<ValueHeader>(raw.data(), raw.size()).has_value());
    EXPECT_FALSE(read_header<ValueHeader>(raw.data(), raw.size() - 1).has_value());
    EXPECT_FALSE(read_header<ValueHeader>(nullptr, 0).has_value());
}

// Python's slices, as the oracle.
Span sliced(const Range& range, std::uint64_t size) {
    std::vector<std::uint64_t> places;
    for (std::uint64_t i = 0; i < size; ++i) {
        const bool in = range.kind == Range::Kind::range    ? range.a <= i && i < range.b
                        : range.kind == Range::Kind::offset ? range.a <= i
                                                            : size - i <= range.a;
        if (in) {
            places.push_back(i);
        }
    }
    return {places.empty() ? 0 : places[0], places.size()};
}

TEST(Resolve, ClampsAsSlicesDo) {
    for (const auto kind : {Range::Kind::range, Range::Kind::offset, Range::Kind::suffix}) {
        for (std::uint64_t size = 0; size < 6; ++size) {
            for (const std::uint64_t a : {0ull, 1ull, 3ull, 5ull, 6ull, 9ull, ~0ull}) {
                for (const std::uint64_t b : {0ull, 1ull, 4ull, 5ull, 6ull, 9ull, ~0ull}) {
                    const Span got = resolve({kind, a, b}, size);
                    const Span expected = sliced({kind, a, b}, size);
                    ASSERT_EQ(got.length, expected.length);
                    ASSERT_LE(got.begin + got.length, size);
                    if (got.length > 0) {
                        ASSERT_EQ(got.begin, expected.begin);
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace ucxstore::test

#include "client/requests.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "support.hpp"

namespace ucxstore::test {
namespace {

const requests::How kHow{60, nullptr};
const std::vector<std::int64_t> kShape = {4, 3};
const std::vector<std::int64_t> kStrides = {6, 2};

Reader body_of(const Operation& operation) {
    const std::string& body = operation.requests.at(0).body;
    return Reader(std::as_bytes(std::span(body.data(), body.size())));
}

// An operation with replies of these bodies.
std::shared_ptr<Operation> answered(const std::vector<std::string>& bodies) {
    std::vector<Item> items(bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        items[i].owned = allocate_region(bodies[i].size());
        std::memcpy(items[i].owned->data(), bodies[i].data(), bodies[i].size());
    }
    return std::make_shared<Operation>(std::move(items), 60, nullptr);
}

std::string numbers(std::initializer_list<std::uint64_t> all) {
    std::string body;
    for (const std::uint64_t number : all) {
        put_u64(body, number);
    }
    return body;
}

std::string texts(std::initializer_list<const char*> all) {
    std::string body;
    for (const char* text : all) {
        put_string(body, text);
    }
    return body;
}

// Where the bytes of a layout lie.
std::vector<std::int64_t> places_of(const Layout& layout) {
    std::vector<ucp_dt_iov_t> pieces;
    layout.pieces(nullptr, 0, layout.size(), pieces);
    std::vector<std::int64_t> places;
    for (const ucp_dt_iov_t& piece : pieces) {
        for (std::size_t i = 0; i < piece.length; ++i) {
            places.push_back(
                static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(piece.buffer)) +
                static_cast<std::int64_t>(i));
        }
    }
    return places;
}

TEST(Array, ABoxLiesWhereItsStridesSay) {
    const Array array = Array::strided(nullptr, kShape, kStrides, 2);
    const std::vector<std::int64_t> start = {1, 1};
    const std::vector<std::int64_t> count = {2, 2};
    EXPECT_EQ(places_of(array.box(start, count)),
              (std::vector<std::int64_t>{8, 9, 10, 11, 14, 15, 16, 17}));
    EXPECT_EQ(array.nbytes(), 24u);
}

TEST(Array, AChunkIsStoredWithoutGaps) {
    const Array chunk = Array::stored_chunk(kShape, 2);
    EXPECT_EQ(chunk.nbytes(), 24u);
    EXPECT_EQ(chunk.dims[0].stride, 6);
    EXPECT_EQ(chunk.dims[1].stride, 2);
}

TEST(Array, NoBoxReachesOutside) {
    const Array array = Array::strided(nullptr, kShape, kStrides, 2);
    const auto box = [&](std::int64_t start, std::int64_t count) {
        return error_of([&] {
            array.box(std::vector<std::int64_t>{start, 0}, std::vector<std::int64_t>{count, 3});
        });
    };
    EXPECT_EQ(box(0, 4), std::nullopt);
    for (const auto& [start, count] : {std::pair<std::int64_t, std::int64_t>{-1, 1},
                                       {0, 0},
                                       {5, 1},
                                       {1, 4},
                                       {1, std::numeric_limits<std::int64_t>::max()}}) {
        EXPECT_EQ(box(start, count), ErrorKind::argument);
    }
}

TEST(Array, ShapeAndStridesMustAgree) {
    const std::vector<std::int64_t> negative = {-1, 3};
    EXPECT_EQ(error_of([&] { Array::strided(nullptr, kShape, {}, 2); }), ErrorKind::argument);
    EXPECT_EQ(error_of([&] { Array::strided(nullptr, negative, kStrides, 2); }),
              ErrorKind::argument);
}

TEST(StridedPart, IsRepeatedAtOffsetsFromWhereItBegins) {
    const std::vector<std::uint64_t> counts = {2};
    const std::vector<std::int64_t> strides = {5};
    const std::vector<std::int64_t> offsets = {0, 100};
    const StridedPart part{10, 2, counts, strides, offsets};
    const std::vector<std::int64_t> places = {10, 11, 15, 16, 110, 111, 115, 116};
    EXPECT_EQ(places_of(part_of_memory(part)), places);
    EXPECT_EQ(places_of(part_of_value(part)), places);
}

TEST(StridedPart, IsRefusedWhereItCannotBe) {
    const std::vector<std::uint64_t> many = {1ull << 40};
    const std::vector<std::int64_t> strides = {1};
    for (const StridedPart& part :
         {StridedPart{0, 1, many, {}, {}}, StridedPart{0, many[0], many, strides, {}}}) {
        EXPECT_EQ(error_of([&] { part_of_memory(part); }), ErrorKind::argument);
        EXPECT_EQ(error_of([&] { part_of_value(part); }), ErrorKind::argument);
    }
    // Memory may begin before its first item; a value may not.
    const StridedPart before{-1, 1, {}, {}, {}};
    EXPECT_EQ(error_of([&] { part_of_memory(before); }), std::nullopt);
    EXPECT_EQ(error_of([&] { part_of_value(before); }), ErrorKind::argument);
}

TEST(Place, ValuesGoWhereTheMemoryIs) {
    const Bytes values = pattern(6);
    Bytes out(12);
    const std::vector<Dim> dims = {{6, 2}};
    const Memory target(out.data(), Layout::strided(0, 1, dims));
    place(values, target);
    for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i], i % 2 == 0 ? values[i / 2] : std::byte{});
    }
    EXPECT_EQ(error_of([&] { place(pattern(5), target); }), ErrorKind::argument);
}

TEST(Requests, AGetHasTheVersionsThatAreAskedFor) {
    const auto operation =
        requests::get(kHow, {"a", "b"}, std::vector<Selection>(2), {{7, 8}}, true);
    EXPECT_TRUE(operation->borrows);
    EXPECT_EQ(operation->gets.at(1).key, "b");
    EXPECT_EQ(operation->gets.at(1).version, 8u);
    const auto any = requests::get(kHow, {"a"}, std::vector<Selection>(1), {}, false);
    EXPECT_EQ(any->gets.at(0).version, kAnyVersion);
}

TEST(Requests, BoxesOfChunksGoToBoxesOfAnArray) {
    Bytes memory(24);
    const Array out = Array::strided(memory.data(), kShape, kStrides, 2);
    const std::vector<std::int64_t> boxes = {0, 0, 1, 1, 1, 2, 1, 0, 0, 0, 1, 1};
    const std::vector<std::int64_t> chunk = {2, 2};
    const auto operation = requests::read_boxes(kHow, {"a", "b"}, boxes, out, chunk, nullptr);
    EXPECT_EQ(places_of(std::get<Layout>(operation->gets.at(0).selection)),
              (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(places_of(std::get<Layout>(operation->gets.at(1).selection)),
              (std::vector<std::int64_t>{4, 5}));
    EXPECT_EQ(operation->gets.at(1).expected, 8u);
    std::vector<ucp_dt_iov_t> pieces;
    operation->items.at(0).memory->pieces(0, 4, pieces);
    EXPECT_EQ(pieces.at(0).buffer, memory.data() + 8);
    EXPECT_TRUE(operation->items.at(0).exact);
}

TEST(Requests, PartsOfValuesAreNamedWhereTheyAreWrong) {
    const std::vector<StridedPart> four = {{0, 4, {}, {}, {}}};
    const std::vector<StridedPart> five = {{0, 5, {}, {}, {}}};
    const std::vector<std::int64_t> any = {-1};
    Bytes memory(8);
    const auto operation =
        requests::read_parts(kHow, {"a"}, four, four, memory.data(), any, {kAnyVersion});
    EXPECT_EQ(operation->gets.at(0).expected, kAnySize);
    try {
        requests::read_parts(kHow, {"a"}, four, five, memory.data(), any, {kAnyVersion});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::argument);
        EXPECT_EQ(std::string(error.what()), "'a': a source and a target of different sizes");
    }
}

TEST(Requests, ChunksAreWrittenFromTheirPlacesInAnArray) {
    Bytes memory(24);
    const Array value = Array::strided(memory.data(), kShape, kStrides, 2);
    const std::vector<std::int64_t> starts = {0, 0, 2, 1};
    const std::vector<std::int64_t> chunk = {2, 2};
    const auto operation = requests::write_boxes(kHow, {"a", "b"}, starts, value, chunk);
    EXPECT_EQ(operation->kind, Operation::Kind::set);
    std::vector<ucp_dt_iov_t> pieces;
    operation->items.at(1).memory->pieces(0, 8, pieces);
    EXPECT_EQ(pieces.at(0).buffer, memory.data() + 14);
}

// One thing for each key.
TEST(Requests, WhatDoesNotMatchTheKeysIsRefused) {
    const std::vector<Selection> one(1);
    const std::vector<std::int64_t> shape = {4};
    const std::vector<std::int64_t> strides = {1};
    const Array array = Array::strided(nullptr, shape, strides, 1);
    const std::vector<StridedPart> parts(1);
    const auto refused = [](auto call) { return error_of(call) == ErrorKind::argument; };
    EXPECT_TRUE(refused([&] { requests::get(kHow, {"a", "b"}, one, {}, false); }));
    EXPECT_TRUE(refused([&] { requests::get(kHow, {"a"}, one, {{1, 2}}, false); }));
    EXPECT_TRUE(refused([&] { requests::get_into(kHow, {"a"}, one, {}); }));
    EXPECT_TRUE(refused([&] { requests::set(kHow, {"a"}, {}); }));
    EXPECT_TRUE(refused([&] { requests::read_boxes(kHow, {"a"}, shape, array, shape, nullptr); }));
    EXPECT_TRUE(refused([&] { requests::read_boxes(kHow, {}, {}, array, kShape, nullptr); }));
    EXPECT_TRUE(refused([&] { requests::write_boxes(kHow, {"a"}, {}, array, shape); }));
    EXPECT_TRUE(refused([&] { requests::write_boxes(kHow, {}, {}, array, kShape); }));
    EXPECT_TRUE(
        refused([&] { requests::read_parts(kHow, {"a"}, parts, parts, nullptr, {}, {0}); }));
}

TEST(Requests, BodiesHaveTheirFieldsInOrder) {
    const auto listing = requests::list_page(kHow, "p/", true, "p/k");
    const ListQuery query = body_of(*listing).list_query();
    EXPECT_EQ(query.prefix, "p/");
    EXPECT_TRUE(query.delimited);
    EXPECT_EQ(query.cursor, "p/k");

    const auto measure = requests::measure(kHow, "p/", true);
    Reader measured = body_of(*measure);
    EXPECT_EQ(measured.string(), "p/");
    EXPECT_EQ(measured.u8(), 1u);

    const auto space = requests::begin_space(kHow, "name", 100, 2000);
    Reader begun = body_of(*space);
    EXPECT_EQ(begun.string(), "name");
    EXPECT_EQ(begun.u64(), 100u);
    EXPECT_EQ(begun.u64(), 2000u);
    EXPECT_TRUE(begun.done());

    for (const auto& [operation, op, text] :
         {std::tuple(requests::renew_space(kHow, "name"), Op::renew_space, "name"),
          std::tuple(requests::end_space(kHow, "name"), Op::end_space, "name"),
          std::tuple(requests::remove_prefix(kHow, "p/"), Op::remove_prefix, "p/"),
          std::tuple(requests::operate(kHow, "{}"), Op::operate, "{}")}) {
        EXPECT_EQ(operation->requests.at(0).header.op, op);
        EXPECT_EQ(body_of(*operation).string(), text);
    }
    EXPECT_TRUE(body_of(*requests::ping(kHow)).done());
    EXPECT_TRUE(body_of(*requests::stats(kHow)).done());
    EXPECT_EQ(error_of([] { requests::operate(kHow, std::string(1 << 16, 'x')); }),
              ErrorKind::argument);
}

TEST(Requests, RepliesAreRead) {
    const auto sizes = answered({numbers({3, kAnySize}), numbers({5})});
    EXPECT_EQ(requests::sizes(*sizes), (std::vector<std::int64_t>{3, -1, 5}));
    EXPECT_EQ(requests::removed(*answered({numbers({4})})), 4u);
    const auto measured = requests::measured(*answered({numbers({2, 30}) + texts({"x"})}));
    EXPECT_EQ(measured, std::tuple(2u, 30u, std::vector<std::string>{"x"}));
    const auto page =
        requests::page(*answered({texts({"next"}) + numbers({1}) + texts({"shut", "a", "b"})}));
    EXPECT_EQ(page, std::tuple(std::vector<std::string>{"a", "b"}, std::string("next"),
                               std::vector<std::string>{"shut"}));
    EXPECT_EQ(error_of([] { requests::page(*answered({""})); }), ErrorKind::protocol);
}

TEST(Requests, StatusesSayWhatBecameOfEachKey) {
    const auto done = answered({"", "", "", ""});
    const std::array statuses = {Status::ok, Status::missing, Status::changed, Status::kept};
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        done->items[i].status = statuses[i];
    }
    EXPECT_EQ(requests::missing(*done), std::vector<std::size_t>{1});
    EXPECT_EQ(requests::outcomes(*done), (std::vector<int>{0, 1, 2, 0}));
    EXPECT_EQ(requests::written(*done), (std::vector<bool>{true, true, true, false}));
}

}  // namespace
}  // namespace ucxstore::test

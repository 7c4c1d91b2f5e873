#include "client/batch.hpp"

#include <gtest/gtest.h>

#include "base/status.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::string> many_keys(std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) {
        keys.push_back("group/array/c/" + std::to_string(i));
    }
    return keys;
}

TEST(Batch, GetsAreSplitIntoMessagesThatFollowOneAnother) {
    const auto keys = many_keys(3000);
    const auto operation = make_operation(keys, Operation::Kind::get, 60, nullptr);
    want(*operation, std::vector<GetItem>(keys.size()));
    const auto messages = request_gets(*operation);
    EXPECT_GT(messages.size(), 1u);
    std::size_t next = 0;
    for (const Outgoing& message : messages) {
        EXPECT_EQ(message.header.op, Op::get);
        EXPECT_EQ(message.header.first, next);
        EXPECT_LE(message.body.size(), kRequestBodyBytes + 100);
        Reader reader(bytes(message.body));
        for (std::uint32_t i = 0; i < message.header.count; ++i) {
            ASSERT_EQ(reader.get_item().key, keys.at(next++));
        }
        EXPECT_TRUE(reader.done());
    }
    EXPECT_EQ(next, keys.size());
}

TEST(Batch, ItemsOfAMessageHaveNumbersInARow) {
    const auto operation = make_operation(many_keys(10), Operation::Kind::get, 60, nullptr);
    want(*operation, std::vector<GetItem>(10));
    const std::vector<std::uint32_t> some = {1, 2, 5, 9};
    const auto messages = request_gets(*operation, some);
    std::vector<std::uint32_t> items;
    for (const Outgoing& message : messages) {
        Reader reader(bytes(message.body));
        for (std::uint32_t i = 0; i < message.header.count; ++i) {
            items.push_back(message.header.first + i);
            EXPECT_EQ(reader.get_item().key, operation->items[items.back()].key);
        }
    }
    EXPECT_EQ(items, some);
    EXPECT_EQ(messages.size(), 3u);
}

TEST(Batch, AGetAsksForNoMoreThanItsMemoryTakes) {
    std::vector<std::byte> out(3000);
    const auto operation = make_operation({"k"}, Operation::Kind::get, 60, nullptr);
    const std::vector<Dim> dims = {{1000, 3}};
    operation->items[0].memory = Memory{out.data(), Layout::strided(0, 1, dims)};
    want(*operation, std::vector<GetItem>(1));
    const auto messages = request_gets(*operation);
    const GetItem item = Reader(bytes(messages[0].body)).get_item();
    EXPECT_EQ(item.limit, 1000u);
    EXPECT_EQ(item.segment, operation->items[0].memory->segment_bytes());
}

TEST(Batch, CallsAreAnsweredAMessage) {
    const auto keys = many_keys(3000);
    const auto operation = make_calls(Op::stat, keys, 60, nullptr);
    ASSERT_EQ(operation->items.size(), operation->requests.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < operation->requests.size(); ++i) {
        const Outgoing& message = operation->requests[i];
        EXPECT_EQ(message.header.first, i);
        EXPECT_EQ(operation->items[i].key, keys[next]);
        Reader reader(bytes(message.body));
        for (std::uint32_t j = 0; j < message.header.count; ++j) {
            ASSERT_EQ(reader.string(), keys.at(next++));
        }
        EXPECT_TRUE(reader.done());
    }
    EXPECT_EQ(next, keys.size());
}

TEST(Batch, NoInvalidKeyLeaves) {
    const std::vector<std::string> keys = {"fine", "../not"};
    EXPECT_EQ(error_of([&] { make_operation(keys, Operation::Kind::set, 60, nullptr); }),
              ErrorKind::invalid_key);
    EXPECT_EQ(error_of([&] { make_calls(Op::remove, keys, 60, nullptr); }), ErrorKind::invalid_key);
}

// One item may be as large as a request; and where it is, it does not share its message with what
// went before.
TEST(Batch, LargeItemsFitAsLongAsAServerTakesThem) {
    std::vector<Range> ranges(15'390, {Range::Kind::range, 0, 1});
    const auto keys = many_keys(60);
    const auto operation = make_operation(keys, Operation::Kind::get, 60, nullptr);
    std::vector<GetItem> wanted(keys.size());
    wanted.back().selection = ranges;
    want(*operation, wanted);
    EXPECT_NO_THROW(request_gets(*operation));

    ranges.resize(20'000, ranges[0]);
    const auto too_large = make_operation({"k"}, Operation::Kind::get, 60, nullptr);
    wanted.resize(1);
    wanted[0].selection = ranges;
    want(*too_large, wanted);
    EXPECT_EQ(error_of([&] { request_gets(*too_large); }), ErrorKind::argument);
    EXPECT_EQ(error_of([&] {
                  make_call(Op::list, "k", std::string(kMaxRequestBytes + 1, 'x'), 60, nullptr);
              }),
              ErrorKind::argument);
}

}  // namespace
}  // namespace ucxstore::test

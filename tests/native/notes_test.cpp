// Clients' notes: beside whatever a server serves, for clients to set and get, bounded.
#include <gtest/gtest.h>

#include "loopback.hpp"
#include "protocol/keys.hpp"
#include "server/storages.hpp"

namespace ucxstore {
namespace {

using namespace test;

std::string note(const std::string& rest) { return std::string(wire::kNotesFolder) + rest; }

// Sets it where it is absent; whether it was.
bool leave(Loopback& both, const std::shared_ptr<Connection>& from, const std::string& key,
           Bytes value) {
    const auto operation = set_operation({{key, memory_of(value)}}, true);
    both.client->submit(from, operation);
    finish(operation);
    return operation->items.at(0).status == wire::Status::ok;
}

void expect_notes(Loopback& both) {
    EXPECT_TRUE(leave(both, both.connection, note("set/b:1"), pattern(16, 1)));
    // Whoever comes later finds what the first one has left.
    const auto other = both.connect();
    EXPECT_FALSE(leave(both, other, note("set/b:1"), pattern(16, 2)));
    EXPECT_EQ(both.get(note("set/b:1")), pattern(16, 1));
    EXPECT_EQ(both.get(note("set/c:1")), std::nullopt);
    both.set(note("set/b:1"), pattern(16, 3));
    EXPECT_EQ(both.get(note("set/b:1")), pattern(16, 3));
}

std::optional<ErrorKind> refused(Loopback& both, wire::Op op, const std::string& body,
                                 std::uint32_t count = 1) {
    return error_of([&] { both.run(call_operation(op, body, count)); });
}

TEST(Notes, AreLeftWithAServerOfMemory) {
    Loopback both;
    expect_notes(both);
    EXPECT_EQ(both.storage->measure("", false).keys, 0u);
    both.storage->remove_prefix("");
    EXPECT_EQ(both.get(note("set/b:1")), pattern(16, 3));
}

TEST(Notes, AreLeftWithAServerThatOnlyReads) {
    Loopback both({}, true);
    expect_notes(both);
    EXPECT_EQ(error_of([&] { both.set("a", pattern(1)); }), ErrorKind::read_only);
}

TEST(Notes, AreNotAskedOfARemoteStorage) {
    const auto remote = std::make_shared<CachedSource>(1 << 20, 0);
    Loopback both(remote);
    expect_notes(both);
    EXPECT_TRUE(remote->calls().take().empty());
}

TEST(Notes, AreOfTheServerAndNotOfAThread) {
    const Storages storages(std::make_shared<MemoryStorage>());
    const Storages same = storages;
    EXPECT_EQ(storages.notes, same.notes);
    EXPECT_NE(storages.notes, Storages(std::make_shared<MemoryStorage>()).notes);
}

TEST(Notes, AreNeitherListedNorRemoved) {
    Loopback both;
    both.set(note("set/b:1"), pattern(16));
    const std::string folder(wire::kNotesFolder);
    for (const std::string& prefix : {folder, note("set/")}) {
        EXPECT_EQ(refused(both, wire::Op::remove_prefix, strings({prefix})),
                  ErrorKind::invalid_key);
        EXPECT_EQ(refused(both, wire::Op::measure, strings({prefix}) + '\0'),
                  ErrorKind::invalid_key);
        EXPECT_EQ(refused(both, wire::Op::list, strings({prefix}) + '\0' + strings({""})),
                  ErrorKind::invalid_key);
    }
    for (const wire::Op op : {wire::Op::stat, wire::Op::remove}) {
        EXPECT_EQ(refused(both, op, strings({"a", note("set/b:1")}), 2), ErrorKind::invalid_key);
    }
    both.run(call_operation(wire::Op::remove_prefix, strings({""})));
    EXPECT_EQ(both.get(note("set/b:1")), pattern(16));
}

// Values may be empty, so it is their keys that could take any memory.
TEST(Notes, TakeBoundedMemory) {
    const Storages storages(std::make_shared<MemoryStorage>());
    const std::string longest(wire::kMaxKeyBytes - 8, 'n');
    std::uint64_t left = 0;
    const auto fill = [&] {
        while (left <= kNotesBytes / wire::kMaxKeyBytes) {
            storages.notes->receive(longest + std::to_string(left), 0)->commit(true);
            ++left;
        }
    };
    EXPECT_EQ(error_of(fill), ErrorKind::storage);
    EXPECT_GT(left, 1000u);
    EXPECT_EQ(error_of([&] { storages.notes->receive("large", kNotesBytes); }), ErrorKind::storage);
}

}  // namespace
}  // namespace ucxstore

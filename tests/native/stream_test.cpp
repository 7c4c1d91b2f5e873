// Plain TCP: a link and a session on a pair of sockets, and peers that are driven by hand.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "client/array.hpp"
#include "client/batch.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "memory/crc32c.hpp"
#include "protocol/sums.hpp"
#include "stream/frames.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

SessionKeys client_keys() {
    SessionKeys keys{};
    keys.send.fill(1);
    keys.receive.fill(2);
    return keys;
}

SessionKeys server_keys() { return {client_keys().receive, client_keys().send}; }

struct Way {
    const char* name;
    Protection client;
    Protection server;
};

class Stream : public testing::TestWithParam<Way> {
  protected:
    Stream() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach_remote(std::move(pair.one), token, {"client"}, "", GetParam().server);
        link = client.attach_remote(std::move(pair.other), token, "server", GetParam().client);
    }
    void run(const std::shared_ptr<Operation>& operation) const {
        link->submit(operation);
        await(*link, operation);
    }

    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    const std::shared_ptr<MemoryStorage> storage =
        std::make_shared<MemoryStorage>(std::make_shared<Quota>(1ull << 40));
    LocalThread server{Service{Storages(std::shared_ptr<Storage>(storage)), counters}, 0};
    LocalClient client;
    std::shared_ptr<StreamLink> link;
};

TEST_P(Stream, ValuesOfEverySizeComeBack) {
    for (const std::size_t size :
         {0ul, 1ul, 4096ul, 4097ul, 1'048'576ul, 1'048'577ul, 5'000'001ul, 40'000'000ul}) {
        Bytes value = pattern(size);
        run(set_operation({{"key", memory_of(value)}}));
        const auto get = get_operation({{"key"}});
        run(get);
        EXPECT_EQ(reply_of(*get), value) << size;
    }
    EXPECT_EQ(link->lanes(), std::vector<std::string>{"tcp"});
}

TEST_P(Stream, RowsOfEveryLengthComeBack) {
    for (const std::size_t row : {1ul, 24ul, 700ul, 3000ul, 70'000ul}) {
        const std::size_t rows = std::max<std::size_t>(300'000 / row, 2);
        // Every other row is the value's.
        const auto strided = [&](Bytes& bytes) {
            const std::vector<std::int64_t> shape{static_cast<std::int64_t>(rows),
                                                  static_cast<std::int64_t>(row)};
            const std::vector<std::int64_t> strides{static_cast<std::int64_t>(2 * row), 1};
            return Memory(bytes.data(), Array::strided(bytes.data(), shape, strides, 1).layout());
        };
        Bytes sent = pattern(rows * row * 2);
        run(set_operation({{"key", strided(sent)}}));
        Bytes come(sent.size(), std::byte{9});
        run(get_operation({{.key = "key", .memory = strided(come)}}));
        for (std::size_t i = 0; i < rows; ++i) {
            const auto row_of = [&](Bytes& bytes, std::size_t number) {
                return std::span(bytes).subspan(number * row, row);
            };
            ASSERT_TRUE(std::ranges::equal(row_of(sent, 2 * i), row_of(come, 2 * i)));
            ASSERT_TRUE(std::ranges::all_of(row_of(come, 2 * i + 1),
                                            [](std::byte one) { return one == std::byte{9}; }));
        }
    }
}

TEST_P(Stream, ManyValuesAtOnce) {
    std::vector<Bytes> values;
    std::vector<Set> sets;
    std::vector<Get> gets;
    for (unsigned i = 0; i < 300; ++i) {
        values.push_back(pattern(10'000 + 700 * i, i));
    }
    for (unsigned i = 0; i < 300; ++i) {
        sets.push_back({"key" + std::to_string(i), memory_of(values[i])});
        gets.push_back({"key" + std::to_string(i)});
    }
    run(set_operation(sets));
    const auto get = get_operation(gets);
    run(get);
    for (unsigned i = 0; i < 300; ++i) {
        EXPECT_EQ(reply_of(*get, i), values[i]) << i;
    }
}

TEST_P(Stream, EndsWithTheServer) {
    const auto get = get_operation({{"missing"}});
    run(get);
    EXPECT_EQ(get->items[0].status, Status::missing);
    server.close();
    const auto late = get_operation({{"key"}});
    link->submit(late);
    EXPECT_EQ(error_of([&] { finish(late); }), ErrorKind::server_lost);
    EXPECT_TRUE(link->failed());
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Stream,
    testing::Values(Way{"plain", {}, {}}, Way{"checked", {.checked = true}, {.checked = true}},
                    Way{"encrypted", {.keys = client_keys()}, {.keys = server_keys()}}),
    [](const auto& info) { return std::string(info.param.name); });

// A link whose server is driven by hand.
class StreamByHand : public testing::Test {
  protected:
    explicit StreamByHand(const Protection& protection = {}) {
        ControlPair pair = control_pair();
        link = client.attach_remote(std::move(pair.other), token, "server", protection);
        peer = std::move(pair.one);
    }

    void say(const std::string& bytes) const {
        ASSERT_EQ(send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    std::string hear(std::size_t size) const {
        std::string bytes(size, ' ');
        std::size_t come = 0;
        while (come < size) {
            pollfd event{.fd = peer.get(), .events = POLLIN, .revents = 0};
            const ssize_t got =
                poll(&event, 1, 10'000) == 1 ? recv(peer.get(), &bytes[come], size - come, 0) : 0;
            if (got <= 0) {
                throw std::runtime_error("nothing comes");
            }
            come += static_cast<std::size_t>(got);
        }
        return bytes;
    }
    // A message without its body.
    struct Heard {
        Frame frame;
        std::string header;
    };
    Heard hear_message() const {
        Heard heard{};
        const std::string frame = hear(sizeof(Frame));
        std::memcpy(&heard.frame, frame.data(), sizeof(Frame));
        heard.header = hear(heard.frame.header_bytes);
        return heard;
    }
    std::uint64_t hear_request() const {
        const Heard heard = hear_message();
        hear(heard.frame.body_bytes);
        return read_header<RequestHeader>(heard.header.data(), heard.header.size())->request;
    }
    static std::string frame(FrameKind kind, const std::string& header, std::uint64_t body) {
        return raw(Frame{kind, 0, static_cast<std::uint32_t>(header.size()), 0, body}) + header;
    }
    std::string reply(std::uint64_t request, std::uint64_t size) const {
        return frame(FrameKind::reply, raw(reply_header(token, request, 0, Status::ok, size)),
                     size);
    }

    const Token token = new_token();
    LocalClient client;
    std::shared_ptr<StreamLink> link;
    Fd peer;
};

TEST_F(StreamByHand, MemoryOfACancelledGetIsNotWrittenTo) {
    Bytes memory(100'000, std::byte{7});
    const auto get = get_operation({{.key = "key", .memory = memory_of(memory)}});
    link->submit(get);
    say(reply(hear_request(), 100'000) + std::string(50'000, 'a'));
    int unread = 1;  // by the link, of what was said
    while (ioctl(peer.get(), SIOCOUTQ, &unread) == 0 && unread > 0) {
        std::this_thread::sleep_for(1ms);
    }
    link->cancel(get);
    EXPECT_EQ(error_of([&] { finish(get); }), ErrorKind::cancelled);
    std::ranges::fill(memory, std::byte{9});
    hear_request();  // that it is abandoned

    // The rest of it goes nowhere, and the connection goes on.
    say(std::string(50'000, 'b'));
    const auto next = get_operation({{"key"}});
    link->submit(next);
    say(reply(hear_request(), 5'000) + std::string(5'000, 'c'));
    finish(next);
    EXPECT_EQ(reply_of(*next), Bytes(5'000, std::byte{'c'}));
    EXPECT_EQ(memory, Bytes(100'000, std::byte{9}));
}

TEST_F(StreamByHand, MemoryOfACancelledSetIsNotReadAnyMore) {
    Bytes memory(40'000'000, std::byte{7});
    const auto set = set_operation({{"key", memory_of(memory)}});
    link->submit(set);
    const Heard first = hear_message();  // and none of its body yet: the socket is soon full
    link->cancel(set);
    EXPECT_EQ(error_of([&] { finish(set); }), ErrorKind::cancelled);
    std::ranges::fill(memory, std::byte{9});
    EXPECT_EQ(hear(first.frame.body_bytes), std::string(first.frame.body_bytes, '\7'));
    for (;;) {
        const Heard next = hear_message();
        const std::string body = hear(next.frame.body_bytes);
        if (next.frame.kind == FrameKind::request) {
            EXPECT_EQ(read_header<RequestHeader>(next.header.data(), next.header.size())->op,
                      Op::abandon);
            break;
        }
        EXPECT_EQ(body, std::string(body.size(), '\7'));
    }
}

TEST_F(StreamByHand, AValueThatWaitsBehindACancelledOneGoes) {
    Bytes memory(40'000'000, std::byte{7});
    const auto cancelled = set_operation({{"key", memory_of(memory)}});
    link->submit(cancelled);
    hear(sizeof(Frame));  // and no more yet: the socket is soon full
    link->cancel(cancelled);
    EXPECT_EQ(error_of([&] { finish(cancelled); }), ErrorKind::cancelled);
    Bytes small(10, std::byte{8});
    const auto next = set_operation({{"next", memory_of(small)}});
    link->submit(next);
    std::string heard;
    while (heard.find("next") == std::string::npos) {  // nothing else has these letters
        heard = heard.substr(std::max<std::size_t>(heard.size(), 3) - 3) + hear(1);
    }
}

TEST_F(StreamByHand, WhatIsNoMessageEndsIt) {
    const std::string other = raw(reply_header(new_token(), 1, 0, Status::ok, 0));
    for (const std::string& said :
         {std::string(64, 'x'), frame(FrameKind::reply, other, 0), frame(FrameKind::upload, "", 0),
          frame(FrameKind::reply, std::string(4000, 'x'), 0),
          frame(FrameKind::room, "", 10) + std::string(10, 'x')}) {
        ControlPair pair = control_pair();
        const auto one = client.attach_remote(std::move(pair.other), token, "server", {});
        const auto get = get_operation({{"key"}});
        one->submit(get);
        pollfd asked{.fd = pair.one.get(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(poll(&asked, 1, 10'000), 1);
        ASSERT_EQ(send(pair.one.get(), said.data(), said.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(said.size()));
        EXPECT_EQ(error_of([&] { finish(get); }), ErrorKind::protocol);
    }
}

class CheckedByHand : public StreamByHand {
  protected:
    CheckedByHand() : StreamByHand({.checked = true}) {}
    // A reply with the sums of this body.
    std::string summed(std::uint64_t request, const std::string& body) const {
        std::string header = raw(reply_header(token, request, 0, Status::ok, body.size()));
        append_sums(header, crc32c(std::as_bytes(std::span(body))));
        return frame(FrameKind::reply, header, body.size());
    }
};

TEST_F(CheckedByHand, AFlippedByteIsAnErrorOfItsKey) {
    const std::string body(50'000, 'a');
    std::string flipped = body;
    flipped[40'000] = 'b';
    const auto get = get_operation({{"key"}});
    link->submit(get);
    say(summed(hear_request(), body) + flipped);
    EXPECT_EQ(error_of([&] { finish(get); }), ErrorKind::integrity);
    hear_request();  // that it is abandoned

    const auto next = get_operation({{"key"}});
    link->submit(next);
    say(summed(hear_request(), body) + body);
    finish(next);
    EXPECT_FALSE(link->failed());
}

TEST_F(CheckedByHand, AFlippedHeaderEndsIt) {
    const auto get = get_operation({{"key"}});
    link->submit(get);
    std::string said = summed(hear_request(), "body");
    said[sizeof(Frame) + 50] ^= 1;
    say(said + "body");
    EXPECT_EQ(error_of([&] { finish(get); }), ErrorKind::integrity);
    EXPECT_TRUE(link->failed());
}

// A link and a session that are encrypted, and a relay between them.
class Relayed {
  public:
    // What becomes of the bytes [begin, ...) that go in this direction.
    using Change = std::function<void(bool to_server, std::uint64_t begin, std::string& bytes)>;

    explicit Relayed(Change change) : change_(std::move(change)) {
        ControlPair near = control_pair();
        ControlPair far = control_pair();
        const Token token = new_token();
        server.attach_remote(std::move(far.one), token, {"client"}, "", {.keys = server_keys()});
        link =
            client.attach_remote(std::move(near.other), token, "server", {.keys = client_keys()});
        ends_[0] = std::move(near.one);
        ends_[1] = std::move(far.other);
        thread_ = std::thread([this] { run(); });
    }
    ~Relayed() {
        link->close();
        server.close();
        client.close();
        thread_.join();
    }

    const std::shared_ptr<MemoryStorage> storage =
        std::make_shared<MemoryStorage>(std::make_shared<Quota>(1ull << 40));
    LocalThread server{
        Service{Storages(std::shared_ptr<Storage>(storage)), std::make_shared<Counters>()}, 0};
    LocalClient client;
    std::shared_ptr<StreamLink> link;

  private:
    void run() {
        std::array<std::uint64_t, 2> passed{};
        while (pass(passed)) {
        }
        for (const Fd& end : ends_) {
            shutdown(end.get(), SHUT_RDWR);
        }
    }
    bool pass(std::array<std::uint64_t, 2>& passed) {
        std::array<pollfd, 2> events{pollfd{ends_[0].get(), POLLIN, 0},
                                     pollfd{ends_[1].get(), POLLIN, 0}};
        if (poll(events.data(), events.size(), 20'000) <= 0) {
            return false;
        }
        const std::size_t from = events[0].revents != 0 ? 0 : 1;
        std::string bytes(65536, ' ');
        const ssize_t got = recv(ends_[from].get(), bytes.data(), bytes.size(), 0);
        if (got <= 0) {
            return false;
        }
        bytes.resize(static_cast<std::size_t>(got));
        change_(from == 0, passed[from], bytes);
        passed[from] += static_cast<std::uint64_t>(got);
        return send(ends_[1 - from].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == got;
    }

    const Change change_;
    std::array<Fd, 2> ends_;
    std::thread thread_;
};

TEST(EncryptedStream, NothingOfAValueOrItsKeyIsOnTheWire) {
    std::string seen;
    Relayed way([&](bool, std::uint64_t, std::string& bytes) { seen += bytes; });
    Bytes value(100'000, std::byte{'v'});
    const auto set = set_operation({{"a-key-to-look-for", memory_of(value)}});
    way.link->submit(set);
    finish(set);
    const auto get = get_operation({{"a-key-to-look-for"}});
    way.link->submit(get);
    finish(get);
    EXPECT_EQ(reply_of(*get), value);
    way.link->close();
    EXPECT_GT(seen.size(), 200'000u);
    EXPECT_EQ(seen.find("a-key-to"), std::string::npos);
    EXPECT_EQ(seen.find("vvvvvvvv"), std::string::npos);
}

void store(Storage& storage, const std::string& key, const Bytes& value) {
    const auto incoming = storage.receive(key, value.size());
    std::ranges::copy(value, incoming->data());
    ASSERT_TRUE(incoming->commit(false));
}

constexpr std::uint64_t kReserved = 12;  // the bytes of a frame that mean nothing

// Of a get's reply: the frame, the header, the data, the tag.
TEST(EncryptedStream, AFlippedBitOfAReplyIsAnErrorAndLeavesNoData) {
    const std::size_t size = 100'000;
    for (std::uint64_t at = 0; at < size + 200; at += at < 150 ? 1 : 7919) {
        if (at >= kReserved && at < kReserved + 4) {
            continue;
        }
        Relayed way([at](bool to_server, std::uint64_t begin, std::string& bytes) {
            if (!to_server && at >= begin && at < begin + bytes.size()) {
                bytes[at - begin] ^= 0x10;
            }
        });
        store(*way.storage, "key", pattern(size));
        Bytes memory(size, std::byte{7});
        const auto get = get_operation({{.key = "key", .memory = memory_of(memory)}}, 5);
        way.link->submit(get);
        const auto kind = error_of([&] { finish(get); });
        EXPECT_TRUE(kind == ErrorKind::integrity || kind == ErrorKind::protocol) << at;
        EXPECT_TRUE(way.link->failed()) << at;
        const bool is_data = at > 200 && at < size;
        EXPECT_TRUE(std::ranges::all_of(memory, [&](std::byte b) {
            return b == (is_data ? std::byte{0} : memory[0]);
        })) << at;
    }
}

TEST(EncryptedStream, AFlippedBitOfAValueStoresNothing) {
    const std::size_t size = 100'000;
    for (std::uint64_t at = 0; at < size + 100; at += at < 150 ? 1 : 7919) {
        if (at >= kReserved && at < kReserved + 4) {
            continue;
        }
        Relayed way([at](bool to_server, std::uint64_t begin, std::string& bytes) {
            if (to_server && at >= begin && at < begin + bytes.size()) {
                bytes[at - begin] ^= 0x10;
            }
        });
        Bytes value = pattern(size);
        const auto set = set_operation({{"key", memory_of(value)}}, false, 5);
        way.link->submit(set);
        EXPECT_EQ(error_of([&] { finish(set); }), ErrorKind::change_lost) << at;
        EXPECT_EQ(way.storage->size("key"), std::nullopt) << at;
    }
}

}  // namespace
}  // namespace ucxstore::test

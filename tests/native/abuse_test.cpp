// Peers that break the protocol: the other side survives, says so, and serves its other peers.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "base/log.hpp"
#include "loopback.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSegment = kSegmentBytes;

// ---------------------------------------------------------------------------------------------
// A client that means ill: `puppet_` has a session of its own beside that of a good client, and has
// begun it as it should.

class BadClient : public testing::Test {
  protected:
    explicit BadClient(std::shared_ptr<Storage> storage = nullptr)
        : both_({}, false, std::move(storage)) {
        join();
        both_.set("good", pattern(100));
    }
    void SetUp() override { meet(); }

    // A new session for the puppet.
    void join() {
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), token_, puppet_.address(),
                             "bad client");
        control_ = std::move(pair.other);
        puppet_.connect(address);
    }
    // The first ping, before which the server listens to nothing else.
    void meet() {
        puppet_.send(Message::request, request(Op::ping));
        ASSERT_EQ(answer(), Status::ok);
        puppet_.received().clear();
    }

    // Whether the server ends the session before long, though nothing else happens to it.
    bool is_thrown_out(std::chrono::milliseconds patience = kPatience) {
        pollfd entry{.fd = control_.get(), .events = POLLIN, .revents = 0};
        return puppet_.until([&] { return poll(&entry, 1, 0) == 1; }, patience);
    }
    bool server_is_well() {
        both_.set("more", pattern(10'000));
        return both_.get("good") == pattern(100) && both_.get("more") == pattern(10'000) &&
               both_.get("evil") == std::nullopt;
    }
    std::string request(Op op, std::uint32_t count = 1) {
        return raw(RequestHeader{token_, 1, op, 0, count, 0});
    }
    std::string value(std::uint64_t total, std::uint64_t offset, std::uint64_t length,
                      std::uint64_t segment = kSegment, std::uint32_t item = 0) {
        return raw(ValueHeader{token_, 1, item, 0, total, segment, offset, length});
    }
    std::optional<Status> answer() {
        if (!puppet_.until([&] { return !puppet_.received().empty(); }, kPatience)) {
            return std::nullopt;
        }
        const std::string& header = puppet_.received().back().header;
        return read_header<ReplyHeader>(header.data(), header.size())->status;
    }

    Loopback both_;
    Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
};

TEST_F(BadClient, MayBehaveWell) {
    puppet_.send(Message::value, value(3, 0, 3) + "fine", "abc");
    EXPECT_EQ(answer(), Status::ok);
    EXPECT_EQ(both_.get("fine"), to_bytes("abc"));
    EXPECT_FALSE(is_thrown_out(100ms));
}

// The session as it is before the first ping.
class Stranger : public BadClient {
  protected:
    void SetUp() override {}
    // Nothing was answered, not even that it was refused.
    void expect_thrown_out_unheard() {
        EXPECT_TRUE(is_thrown_out());
        EXPECT_TRUE(puppet_.received().empty());
        EXPECT_TRUE(server_is_well());
    }
};

TEST_F(Stranger, MayNotBeginWithARequest) {
    puppet_.send(Message::request, request(Op::remove), strings({"good"}));
    expect_thrown_out_unheard();
}

TEST_F(Stranger, MayNotBeginWithAnAbandonedRequest) {
    puppet_.send(Message::request, request(Op::abandon));
    expect_thrown_out_unheard();
}

TEST_F(Stranger, MayNotBeginWithAValue) {
    puppet_.send(Message::value, value(3, 0, 3) + "evil", "abc");
    expect_thrown_out_unheard();
}

TEST_F(Stranger, MayNotBeginWithAValueByRendezvous) {
    const std::string big(100'000, 'x');
    puppet_.send(Message::value, value(big.size(), 0, big.size()) + "evil", big,
                 Puppet::Way::rendezvous);
    expect_thrown_out_unheard();
}

// It would hold a worker, with its descriptors and its shared memory, for as long as it likes.
TEST_F(Stranger, MayNotBeSilentForEver) {
    EXPECT_FALSE(is_thrown_out(5s));
    expect_thrown_out_unheard();
}

TEST_F(Stranger, MayGoWithoutAWord) {
    control_.reset();
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 1; }));
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, WithoutATokenIsNotHeard) {
    token_[15] ^= 1;
    puppet_.send(Message::request, request(Op::remove), strings({"good"}));
    puppet_.send(Message::value, value(3, 0, 3) + "evil", "abc");
    const std::string big(100'000, 'x');
    puppet_.send(Message::value, value(big.size(), 0, big.size()) + "evil", big,
                 Puppet::Way::rendezvous);
    EXPECT_TRUE(puppet_.until([&] { return both_.counters.messages_refused == 3; }));
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, WithHalfAHeaderIsNotHeard) {
    const std::string header = request(Op::remove);
    puppet_.send(Message::request, "");
    puppet_.send(Message::request, header.substr(0, header.size() - 1), strings({"good"}));
    puppet_.send(Message::value, value(3, 0, 3).substr(0, 40), "abc");
    EXPECT_TRUE(puppet_.until([&] { return both_.counters.messages_refused == 3; }));
    EXPECT_TRUE(server_is_well());
}

struct BadRequest {
    const char* name;
    std::uint32_t op;
    std::uint32_t count;
    std::string body;
    Puppet::Way way = Puppet::Way::eager;
};

class BadRequestTest : public BadClient, public testing::WithParamInterface<BadRequest> {};

INSTANTIATE_TEST_SUITE_P(
    All, BadRequestTest,
    testing::Values(
        BadRequest{"AnUnknownOp", 77, 1, "x"},
        BadRequest{"NoBody", static_cast<std::uint32_t>(Op::get), 1, ""},
        BadRequest{"FewerItemsThanSaid", static_cast<std::uint32_t>(Op::stat), ~0u,
                   strings({"a", "b"})},
        BadRequest{"AGarbledItem", static_cast<std::uint32_t>(Op::get), 1,
                   strings({"good"}) + std::string(17, '\xff')},
        BadRequest{"CountlessOffsets", static_cast<std::uint32_t>(Op::get), 1,
                   strings({"good"}) + std::string(32, '\x40') + "\x02\xff\xff\x3f"},
        BadRequest{"HalfAQuery", static_cast<std::uint32_t>(Op::list), 1, strings({"a"})},
        BadRequest{"HalfASpace", static_cast<std::uint32_t>(Op::begin_space), 1,
                   strings({std::string(32, '1')}) + std::string(15, '\1')},
        BadRequest{"HalfAnOperators", static_cast<std::uint32_t>(Op::operate), 1,
                   strings({"{}"}).substr(0, 3)},
        BadRequest{"NothingOfAnOperator", static_cast<std::uint32_t>(Op::operate), 1, ""},
        BadRequest{"TooLarge", static_cast<std::uint32_t>(Op::ping), 1,
                   std::string(kMaxRequestBytes + 1, 'x')},
        BadRequest{"ByRendezvous", static_cast<std::uint32_t>(Op::ping), 1,
                   std::string(20'000, 'x'), Puppet::Way::rendezvous}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadRequestTest, EndsTheSession) {
    const BadRequest& bad = GetParam();
    puppet_.send(Message::request, request(static_cast<Op>(bad.op), bad.count), bad.body, bad.way);
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

struct BadValue {
    const char* name;
    std::uint64_t total;
    std::uint64_t offset;
    std::uint64_t length;
    std::size_t size = 3;  // of what is really sent
    std::string key = "evil";
    std::uint64_t segment = kSegment;
};

class BadValueTest : public BadClient, public testing::WithParamInterface<BadValue> {};

INSTANTIATE_TEST_SUITE_P(
    All, BadValueTest,
    testing::Values(BadValue{"LongerThanSent", 10, 0, 10}, BadValue{"ShorterThanSent", 2, 0, 2},
                    BadValue{"ASegmentTooShort", 10, 0, 3}, BadValue{"OffTheGrid", 10, 7, 3},
                    BadValue{"BeyondTheEnd", 3, kSegment, 3},
                    BadValue{"AtTheEnd", kSegment, kSegment, 0, 0},
                    BadValue{"AnEmptyPartOfSome", 3, 0, 0, 0},
                    BadValue{"TooLargeToBelieve", protocol::kMaxValueBytes + 1, 0, 3},
                    BadValue{"TwoToThe63", 1ull << 63, 0, 3},
                    BadValue{"AllOnes", ~0ull, ~0ull - kSegment + 1, 3},
                    BadValue{"AKeyTooLong", 3, 0, 3, 3, std::string(kMaxKeyBytes + 1, 'k')},
                    BadValue{"SegmentsOfNothing", 3, 0, 3, 3, "evil", 0},
                    BadValue{"SegmentsTooShort", 3, 0, 3, 3, "evil", kMinSegmentBytes / 2}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadValueTest, EndsTheSession) {
    const BadValue& bad = GetParam();
    puppet_.send(Message::value, value(bad.total, bad.offset, bad.length, bad.segment) + bad.key,
                 std::string(bad.size, 'x'));
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, MayNotSendASegmentTwice) {
    const std::string segment(kSegment, 'x');
    for (int i = 0; i < 2; ++i) {
        puppet_.send(Message::value, value(kSegment + 1, 0, kSegment) + "evil", segment,
                     Puppet::Way::rendezvous);
    }
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, MayNotMixTwoValues) {
    const std::string segment(kSegment, 'x');
    puppet_.send(Message::value, value(kSegment + 2, 0, kSegment) + "evil", segment,
                 Puppet::Way::rendezvous);
    puppet_.send(Message::value, value(kSegment + 2, kSegment, 2) + "other", "xx");
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, WhoGoesInMidValueLeavesNothing) {
    puppet_.send(Message::value, value(kSegment + 2, kSegment, 2) + "evil", "xx");
    puppet_.flush();
    control_.reset();
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 1; }));
    EXPECT_TRUE(server_is_well());
}

// What the server reports of the bad client.
class Reported : public BadClient {
  protected:
    Reported() {
        log::queue().take();
        log::listen(log::off, log::info);
    }
    ~Reported() override { log::listen(log::off, log::off); }

    // The detail of the first warning of a kind, once there is one.
    std::optional<std::string> hears(log::EventKind kind) {
        std::optional<std::string> detail;
        puppet_.until(
            [&] {
                for (const log::Record& record : log::queue().take().records) {
                    if (!detail && record.kind == kind && record.level == log::warning &&
                        record.area == log::Area::server && record.peer.view() == "bad client") {
                        detail = record.detail.view();
                    }
                }
                return detail.has_value();
            },
            kPatience);
        return detail;
    }
};

TEST_F(Reported, AMessageThatIsRefused) {
    puppet_.send(Message::request, request(static_cast<Op>(77)), "x");
    const auto why = hears(log::EventKind::refused);
    ASSERT_TRUE(why);
    EXPECT_NE(*why, "");
}

TEST_F(Reported, ItsEndInTheMiddleOfSomething) {
    puppet_.send(Message::value, value(kSegment + 2, kSegment, 2) + "evil", "xx");
    puppet_.flush();
    control_.reset();
    EXPECT_EQ(hears(log::EventKind::lost), "it is gone");
}

TEST_F(BadClient, AskingForMoreMemoryThanThereIsIsRefused) {
    constexpr std::uint64_t kTotal = protocol::kMaxValueBytes / 4;
    puppet_.send(Message::value, value(kTotal, kTotal - kSegment, kSegment) + "evil",
                 std::string(kSegment, 'x'), Puppet::Way::rendezvous);
    EXPECT_EQ(answer(), Status::storage);
    EXPECT_FALSE(is_thrown_out(100ms));
    EXPECT_TRUE(server_is_well());
}

// One bit a segment would be 2 GiB.
TEST_F(BadClient, ClaimingCountlessSegmentsCostsNoMemory) {
    const std::uint64_t before = peak_bytes();
    puppet_.send(Message::value,
                 value(protocol::kMaxValueBytes, 0, kMinSegmentBytes, kMinSegmentBytes) + "evil",
                 std::string(kMinSegmentBytes, 'x'));
    is_thrown_out(200ms);  // or is answered that there is no room
    EXPECT_TRUE(server_is_well());
    EXPECT_LT(peak_bytes() - before, 256ull << 20);
}

// A value takes memory as its segments come. One bit for each of them would be 500 MiB here.
TEST_F(BadClient, ManyValuesOfCountlessSegmentsCostNoMemory) {
    constexpr std::uint64_t kTotal = (kMaxSegments - 1) * kMinSegmentBytes;
    constexpr std::uint32_t kCount = 1000;
    const std::string part(kMinSegmentBytes, 'x');
    const std::uint64_t before = heap_bytes();
    for (std::uint32_t item = 0; item < kCount; ++item) {
        const std::uint64_t last = kTotal - part.size();
        puppet_.send(Message::value,
                     value(kTotal, last, part.size(), part.size(), item) + "evil/../key", part);
    }
    EXPECT_TRUE(puppet_.until([&] { return puppet_.received().size() == kCount; }));
    EXPECT_LT(heap_bytes() - before, 100ull << 20);
    EXPECT_TRUE(server_is_well());
}

class BadClientOfLittleMemory : public BadClient {
  protected:
    BadClientOfLittleMemory() : BadClient(std::make_shared<MemoryStorage>(10 << 20)) {}
};

TEST_F(BadClientOfLittleMemory, AnnouncingAValueTakesNothing) {
    constexpr std::uint64_t kTotal = 9 << 20;
    const std::string part(kMinSegmentBytes, 'x');
    for (std::uint32_t item = 0; item < 100; ++item) {
        puppet_.send(Message::value, value(kTotal, 0, part.size(), part.size(), item) + "evil",
                     part);
    }
    puppet_.send(Message::request, request(Op::ping));
    EXPECT_TRUE(puppet_.until([&] { return !puppet_.received().empty(); }));
    both_.set("large", pattern(8 << 20));
    EXPECT_EQ(both_.get("large"), pattern(8 << 20));
    EXPECT_TRUE(server_is_well());
}

// What is kept of a value that is refused is kept until all of it has come.
TEST_F(BadClient, MayNotHaveCountlessRefusedValuesUnfinished) {
    const auto begin = [&](std::uint32_t item) {
        const std::string part(kMinSegmentBytes, 'x');
        puppet_.send(Message::value,
                     value(2 * part.size(), 0, part.size(), part.size(), item) + "evil/../key",
                     part);
    };
    constexpr std::uint32_t kFine = 2000;
    for (std::uint32_t item = 0; item < kFine; ++item) {
        begin(item);
    }
    EXPECT_TRUE(puppet_.until([&] { return puppet_.received().size() == kFine; }));
    EXPECT_EQ(answer(), Status::invalid_key);
    EXPECT_FALSE(is_thrown_out(100ms));
    for (std::uint32_t item = kFine; item < kFine + 100; ++item) {
        begin(item);
        // Often handled after the values that are too many, before the session has ended.
        puppet_.send(Message::request, raw(RequestHeader{token_, 2, Op::abandon, 0, 0, 0}));
    }
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_F(BadClient, PrefixesAreCheckedAsKeysAre) {
    for (const std::string prefix : {"../", "/", "a/../", "a//", "ab"}) {
        puppet_.received().clear();
        puppet_.send(Message::request, request(Op::remove_prefix), strings({prefix}));
        EXPECT_EQ(answer(), Status::invalid_key) << prefix;
        puppet_.received().clear();
        puppet_.send(Message::request, request(Op::measure),
                     strings({prefix}) + std::string(1, '\0'));
        EXPECT_EQ(answer(), Status::invalid_key) << prefix;
    }
    EXPECT_TRUE(server_is_well());
}

// The server has just been busy when the bad message comes, and then falls idle.
TEST_F(BadClient, IsThrownOutByAnIdleServerToo) {
    for (int round = 0; round < 20; ++round) {
        token_ = new_token();
        join();
        meet();
        puppet_.send(Message::request, request(static_cast<Op>(77)));
        ASSERT_TRUE(is_thrown_out()) << "round " << round;
    }
}

// ---------------------------------------------------------------------------------------------
// Values that are never finished.

// Counts the values on their way in, and has no room under "full/".
class CountingStorage : public MemoryStorage {
  public:
    std::atomic<int> incoming = 0;

    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override {
        if (key.starts_with("full/")) {
            throw Error(ErrorKind::storage, "no room");
        }
        return std::make_unique<Counted>(incoming, MemoryStorage::receive(key, size));
    }

  private:
    struct Counted : Incoming {
        Counted(std::atomic<int>& the_count, std::unique_ptr<Incoming> the_inner)
            : count(the_count), inner(std::move(the_inner)) {
            ++count;
        }
        ~Counted() override { --count; }
        std::byte* data() override { return inner->data(); }
        bool commit(bool if_absent) override { return inner->commit(if_absent); }

        std::atomic<int>& count;
        std::unique_ptr<Incoming> inner;
    };
};

// A value of many segments out of one MiB, over and over.
Memory endless(Bytes& bytes, std::uint64_t segments) {
    const std::vector<Dim> again = {{segments * kSegment / bytes.size(), 0}};
    return {bytes.data(), Layout::strided(0, bytes.size(), again)};
}

TEST(Unfinished, ACancelledSetIsForgotten) {
    const auto storage = std::make_shared<CountingStorage>();
    Loopback both({}, false, storage);
    Bytes bytes = pattern(1 << 20);
    for (int round = 0; round < 3; ++round) {
        const auto operation = set_operation({{"k", endless(bytes, 16)}});
        both.submit(operation);
        ASSERT_TRUE(eventually([&] { return storage->incoming == 1 || operation->done(); }));
        both.client->cancel(both.connection, operation);
        ASSERT_TRUE(operation->wait_for(kPatience));
        EXPECT_TRUE(eventually([&] { return storage->incoming == 0; }))
            << "the server keeps the memory of a value that will never be whole";
    }
}

TEST(Unfinished, RefusedSetsAreForgotten) {
    Loopback both({}, false, std::make_shared<CountingStorage>());
    Bytes bytes = pattern(1 << 20);
    for (int round = 0; round < 1100; ++round) {
        const auto operation = set_operation({{"full/k", endless(bytes, 6)}});
        ASSERT_EQ(error_of([&] { both.run(operation); }), ErrorKind::storage);
    }
    both.set("k", pattern(10));
}

// ---------------------------------------------------------------------------------------------
// A server that means ill: the client takes `puppet_` for one, beside a good server.

class BadServer : public testing::Test {
  protected:
    BadServer() {
        ControlPair pair = control_pair();
        auto worker = both_.client->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        connection_ = both_.client->attach(std::move(worker), std::move(pair.one), token_,
                                           puppet_.address(), "bad");
        puppet_.meet(address);
        control_ = std::move(pair.other);
    }

    // Submits it, and waits until the puppet has the request.
    void ask(const std::shared_ptr<Operation>& operation) {
        operation_ = operation;
        both_.client->submit(connection_, operation);
        ASSERT_TRUE(puppet_.until([&] { return !puppet_.received().empty(); }));
    }
    ReplyHeader reply(Status status, std::uint64_t size = 0, std::uint32_t item = 0) {
        return reply_header(token_, operation_->id, item, status, size);
    }
    void send(const ReplyHeader& header, const std::string& data = {},
              Puppet::Way way = Puppet::Way::eager) {
        puppet_.send(Message::reply, raw(header), data, way);
    }
    // What the operation fails with; nullopt where it succeeds.
    std::optional<ErrorKind> failure() {
        EXPECT_TRUE(puppet_.until([&] { return operation_->done(); }));
        return error_of([&] { finish(operation_); });
    }
    bool client_is_well() {
        both_.set("k", pattern(10'000));
        return both_.get("k") == pattern(10'000);
    }

    Loopback both_;
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
    std::shared_ptr<Connection> connection_;
    std::shared_ptr<Operation> operation_;
};

TEST_F(BadServer, MayBehaveWell) {
    ask(get_operation({{.key = "k"}}));
    send(reply(Status::ok, 3), "abc");
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(reply_of(*operation_), to_bytes("abc"));
}

TEST_F(BadServer, NonsenseIsNotHeard) {
    ask(get_operation({{.key = "k"}}));
    ReplyHeader header = reply(Status::ok, 3);
    header.token[15] ^= 1;
    send(header, "abc");
    puppet_.send(Message::reply, "");
    header = reply(Status::ok, 3);
    puppet_.send(Message::reply, raw(header).substr(0, sizeof(header) - 1), "abc");
    header.request = 99'999;
    send(header, "abc");
    send(reply(Status::ok, 3), "fin");
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(reply_of(*operation_), to_bytes("fin"));
}

// UCX keeps no order among messages.
TEST_F(BadServer, SegmentsComeInAnyOrder) {
    constexpr std::uint64_t kSize = 3 * kMinSegmentBytes + 5;
    const Bytes value = pattern(kSize);
    Bytes out(kSize);
    ask(get_operation({{.key = "k", .memory = memory_of(out)}}));
    for (const std::uint64_t index : {2, 3, 0, 1}) {
        ReplyHeader header = reply(Status::ok, kSize);
        header.segment = kMinSegmentBytes;
        header.offset = index * header.segment;
        header.length = std::min(header.segment, kSize - header.offset);
        send(header, std::string(reinterpret_cast<const char*>(value.data()) + header.offset,
                                 header.length));
    }
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(out, value);
}

struct BadReply {
    const char* name;
    void (*spoil)(ReplyHeader&);
};

class BadReplyTest : public BadServer, public testing::WithParamInterface<BadReply> {};

INSTANTIATE_TEST_SUITE_P(
    All, BadReplyTest,
    testing::Values(BadReply{"ToNoItem", [](auto& header) { header.item = 1; }},
                    BadReply{"LongerThanSent", [](auto& header) { header.length = 4; }},
                    BadReply{"BeyondItsEnd", [](auto& header) { header.reply_size = 2; }},
                    BadReply{"OffTheGrid", [](auto& header) { header.offset = 7; }},
                    BadReply{"PastTheEnd", [](auto& header) { header.offset = header.segment; }},
                    BadReply{"OfPartOfASegment", [](auto& header) { header.reply_size = 10; }},
                    BadReply{"LargerThanOut", [](auto& header) { header.reply_size = 101; }},
                    BadReply{"AllOnes",
                             [](auto& header) {
                                 header.reply_size = ~0ull;
                                 header.segment = ~0ull;
                             }},
                    BadReply{"AnEndlessSegment", [](auto& header) { header.length = ~0ull; }},
                    BadReply{"OfSegmentsOfNothing", [](auto& header) { header.segment = 0; }},
                    BadReply{"OfNoValue", [](auto& header) { header.version = 0; }},
                    BadReply{"ChangedThoughAnyWillDo",
                             [](auto& header) { header.status = Status::changed; }},
                    BadReply{"KeptForAGet", [](auto& header) { header.status = Status::kept; }}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadReplyTest, EndsTheConnection) {
    Bytes out(100);
    ask(get_operation({{.key = "k", .memory = memory_of(out)}}));
    ReplyHeader header = reply(Status::ok, 3);
    GetParam().spoil(header);
    send(header, "abc");
    EXPECT_EQ(failure(), ErrorKind::protocol);
    EXPECT_EQ(out, Bytes(100));
    EXPECT_TRUE(client_is_well());
}

TEST_F(BadServer, OfAnotherValueThanWasMeant) {
    Bytes out(100);
    ask(get_operation({{.key = "k", .memory = memory_of(out), .version = 77}}));
    send(reply(Status::ok, 3), "abc");
    EXPECT_EQ(failure(), ErrorKind::protocol);
    EXPECT_EQ(out, Bytes(100));
}

TEST_F(BadServer, MayNotMixTwoValues) {
    Bytes out(kMinSegmentBytes + 3);
    ask(get_operation({{.key = "k", .memory = memory_of(out)}}));
    ReplyHeader header = reply(Status::ok, out.size());
    header.segment = kMinSegmentBytes;
    header.length = header.segment;
    send(header, std::string(header.length, 'x'));
    header.offset = header.segment;
    header.length = 3;
    ++header.version;
    send(header, "abc");
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, MayNotCallChangedWhatIsAsItWas) {
    ask(get_operation({{.key = "k", .version = 1}}));
    send(reply(Status::changed));  // version 1
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, OnlyAGetCanFindAnotherValue) {
    Bytes bytes(10);
    ask(set_operation({{"k", memory_of(bytes)}}));
    send(reply(Status::changed));
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, EmptySegmentsAreNoProgress) {
    ask(get_operation({{.key = "k"}}));
    ReplyHeader header = reply(Status::ok, 3);
    header.length = 0;
    send(header);
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, MayCallAnythingTooLarge) {
    ask(get_operation({{.key = "k"}}));  // into memory of our own, of any size
    ReplyHeader header = reply(Status::too_large);
    header.value_size = 3;
    send(header);
    EXPECT_EQ(failure(), ErrorKind::protocol);
    EXPECT_TRUE(client_is_well());
}

TEST_F(BadServer, ASegmentComesOnce) {
    Bytes out(2 * kMinSegmentBytes);
    ask(get_operation({{.key = "k", .memory = memory_of(out)}}));
    ReplyHeader header = reply(Status::ok, out.size());
    header.segment = header.length = kMinSegmentBytes;
    send(header, std::string(header.length, 'x'));
    send(header, std::string(header.length, 'y'));
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, ABoxMustBeFilled) {
    Bytes out(100);
    ask(get_operation({{.key = "k", .memory = memory_of(out), .exact = true}}));
    send(reply(Status::ok, 99), std::string(99, 'x'));
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, OnlyAKeyCanBeMissing) {
    ask(call_operation(Op::stat, strings({"k"})));
    send(reply(Status::missing));
    EXPECT_EQ(failure(), ErrorKind::protocol);
}

TEST_F(BadServer, MoreThanMemoryHoldsFailsAndNoMore) {
    ask(get_operation({{.key = "k"}}));
    ReplyHeader header = reply(Status::ok, protocol::kMaxValueBytes);
    header.segment = header.length = kSegmentBytes;
    send(header, std::string(header.length, 'x'), Puppet::Way::rendezvous);
    EXPECT_NE(failure(), std::nullopt);
    EXPECT_TRUE(client_is_well());
}

TEST_F(BadServer, AnErrorIsNoMoreThanText) {
    ask(get_operation({{.key = "k"}}));
    send(reply(static_cast<Status>(77), 20'000), std::string(20'000, '\xff'),
         Puppet::Way::rendezvous);
    EXPECT_NE(failure(), std::nullopt);
    EXPECT_TRUE(client_is_well());
}

// The first item is on its way by rendezvous when it is called missing as well: counted twice, it
// would end the operation before the second item is there.
TEST_F(BadServer, AnItemIsAnsweredOnce) {
    Bytes first(100'000);
    Bytes second(100);
    ask(get_operation(
        {{.key = "a", .memory = memory_of(first)}, {.key = "b", .memory = memory_of(second)}}));
    send(reply(Status::ok, first.size()), std::string(first.size(), 'x'), Puppet::Way::rendezvous);
    send(reply(Status::missing));
    EXPECT_NE(failure(), std::nullopt) << "the second item never came";
}

}  // namespace
}  // namespace ucxstore::test

// Checksums of messages: what fits them arrives, what does not is an error of its key, and never a
// value.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

#include "loopback.hpp"
#include "memory/crc32c.hpp"
#include "protocol/sums.hpp"
#include "storage/directory.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kSizes[] = {0, 1, 4096, 4097, 65'536, 100'000, (16 << 20) + 3};

// Rows of `run` bytes, with gaps between them.
Memory rows(Bytes& bytes, std::uint64_t run, std::int64_t stride) {
    const Dim dim{bytes.size() / static_cast<std::uint64_t>(stride), stride};
    return {bytes.data(), Layout::strided(0, run, {&dim, 1})};
}

TEST(Sums, CoverAllOfAHeader) {
    const std::string header = "what it says";
    std::string sent = header;
    append_sums(sent, 42);
    std::size_t size = sent.size();
    EXPECT_EQ(take_sums(sent.data(), size), 42u);
    EXPECT_EQ(size, header.size());
    for (std::size_t bit = 0; bit < 8 * sent.size(); ++bit) {
        std::string altered = sent;
        altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
        size = altered.size();
        EXPECT_EQ(take_sums(altered.data(), size), std::nullopt) << bit;
    }
    for (std::size_t length = 0; length < sent.size(); ++length) {
        size = length;
        EXPECT_EQ(take_sums(sent.data(), size), std::nullopt) << length;
    }
}

// ---------------------------------------------------------------------------------------------
// Both ends are good.

class Checked : public testing::TestWithParam<std::tuple<const char*, bool>> {
  protected:
    Checked() {
        const auto& [tls, directory] = GetParam();
        const Options options{{"TLS", tls}};
        both_ = std::make_unique<Loopback>(
            options, false,
            directory ? std::shared_ptr<Storage>(
                            std::make_shared<DirectoryStorage>(folder_.path(), Durability::none))
                      : nullptr);
        both_->connection = both_->connect(*both_->client, true);
    }
    ~Checked() override { both_->connection.reset(); }

    TemporaryDirectory folder_;
    std::unique_ptr<Loopback> both_;
};

INSTANTIATE_TEST_SUITE_P(All, Checked,
                         testing::Combine(testing::Values("tcp", "sm,self"), testing::Bool()),
                         [](const auto& info) {
                             return std::string(std::get<0>(info.param)).substr(0, 2) +
                                    (std::get<1>(info.param) ? "Directory" : "Memory");
                         });

TEST_P(Checked, ValuesOfAnySize) {
    EXPECT_TRUE(both_->connection->checked());
    for (const std::uint64_t size : kSizes) {
        const std::string key = "k" + std::to_string(size);
        both_->set(key, pattern(size));
        EXPECT_EQ(both_->get(key), pattern(size)) << size;
        EXPECT_EQ(both_->get(key), pattern(size)) << size;  // by sums that were kept
        EXPECT_EQ(both_->stat(key), size);
    }
    EXPECT_EQ(both_->get("none"), std::nullopt);
}

TEST_P(Checked, PartsOfValues) {
    const Bytes value = pattern(3'000'000);
    both_->set("k", value);
    using Kind = Range::Kind;
    const auto range = [](std::uint64_t begin, std::uint64_t end) {
        return Range{Kind::range, begin, end};
    };
    const auto part = [&](std::uint64_t begin, std::uint64_t end) {
        return Bytes(value.begin() + static_cast<std::ptrdiff_t>(begin),
                     value.begin() + static_cast<std::ptrdiff_t>(end));
    };
    for (const auto& [begin, end] : {std::pair{5, 10}, {7, 2'999'999}, {65'536, 196'608}}) {
        const auto b = static_cast<std::uint64_t>(begin);
        const auto e = static_cast<std::uint64_t>(end);
        EXPECT_EQ(both_->get("k", std::vector{range(b, e)}), part(b, e));
    }
    Bytes both = part(0, 200'000);
    const Bytes other = part(1'000'000, 1'000'010);
    both.insert(both.end(), other.begin(), other.end());
    EXPECT_EQ(both_->get("k", std::vector{range(0, 200'000), range(1'000'000, 1'000'010)}), both);
}

TEST_P(Checked, RowsToRows) {
    for (const std::uint64_t run : {16, 300, 70'000}) {
        const auto stride = static_cast<std::int64_t>(run + 100);
        Bytes from = pattern(static_cast<std::uint64_t>(stride) * 40);
        both_->run(set_operation({{"rows", rows(from, run, stride)}}));
        Bytes to(from.size());
        both_->run(get_operation({{.key = "rows", .memory = rows(to, run, stride)}}));
        Bytes expected(from.size());
        for (std::size_t row = 0; row < 40; ++row) {
            const auto at = static_cast<std::ptrdiff_t>(row) * stride;
            std::copy_n(from.begin() + at, run, expected.begin() + at);
        }
        EXPECT_EQ(to, expected) << run;
    }
}

TEST(Integrity, IsForNetworksUnlessToldOtherwise) {
    for (const Options& options :
         {Options{{"TLS", "tcp"}, {"NET_DEVICES", "lo"}}, Options{{"TLS", "sm,self"}}}) {
        Loopback both(options);
        EXPECT_FALSE(both.connect(*both.client, std::nullopt)->checked());
        EXPECT_TRUE(both.connect(*both.client, true)->checked());
        EXPECT_FALSE(both.connect(*both.client, false)->checked());
    }
}

// ---------------------------------------------------------------------------------------------
// A network that changes bits between a server and a client: the puppet sends what comes of it.

class AlteredReply : public testing::TestWithParam<Puppet::Way> {
  protected:
    AlteredReply() {
        ControlPair pair = control_pair();
        auto worker = both_.client->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        connection_ = both_.client->attach(std::move(worker), std::move(pair.one), token_,
                                           puppet_.address(), "server", true);
        puppet_.meet(address);
        control_ = std::move(pair.other);
    }
    // Asks, and is answered with these bytes, whose sum is that of `meant`.
    void answer(const std::shared_ptr<Operation>& operation, const Bytes& meant, const Bytes& sent,
                std::uint32_t item = 0) {
        submit(operation);
        reply(meant, sent, item);
    }
    // Until the puppet has heard of it. An operation that has failed is given up by a message of
    // its own, which may come first.
    void submit(const std::shared_ptr<Operation>& operation) {
        operation_ = operation;
        both_.client->submit(connection_, operation);
        ASSERT_TRUE(puppet_.until([&] {
            return std::ranges::any_of(puppet_.received(), [&](const Puppet::Received& message) {
                const auto& [header, data] = message;
                const auto request = read_header<RequestHeader>(header.data(), header.size());
                return request && request->request == operation->id;
            });
        }));
    }
    void reply(const Bytes& meant, const Bytes& sent, std::uint32_t item, std::size_t bit = 0) {
        std::string header =
            raw(reply_header(token_, operation_->id, item, Status::ok, meant.size()));
        append_sums(header, crc32c(meant));
        if (bit > 0) {
            header[bit / 8] = static_cast<char>(header[bit / 8] ^ (1 << (bit % 8)));
        }
        puppet_.send(Message::reply, header,
                     std::string(reinterpret_cast<const char*>(sent.data()), sent.size()),
                     GetParam());
    }
    std::optional<ErrorKind> failure() {
        EXPECT_TRUE(puppet_.until([&] { return operation_->done(); }));
        try {
            finish(operation_);
        } catch (const Error& error) {
            text_ = error.what();
            return error.kind();
        }
        return std::nullopt;
    }

    Loopback both_;
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
    std::shared_ptr<Connection> connection_;
    std::shared_ptr<Operation> operation_;
    std::string text_;
};

INSTANTIATE_TEST_SUITE_P(All, AlteredReply,
                         testing::Values(Puppet::Way::eager, Puppet::Way::rendezvous),
                         [](const auto& info) {
                             return info.param == Puppet::Way::eager ? "Eager" : "Rendezvous";
                         });

Bytes with_a_bit_changed(Bytes bytes) {
    bytes[bytes.size() / 2] ^= std::byte{8};
    return bytes;
}

TEST_P(AlteredReply, FitsWhereItIsNot) {
    Bytes out(3000);
    answer(get_operation({{.key = "k", .memory = memory_of(out)}}), pattern(3000), pattern(3000));
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(out, pattern(3000));
}

TEST_P(AlteredReply, IsAnErrorOfItsKeyAlone) {
    Bytes out(3000);
    answer(get_operation({{.key = "key/0.0", .memory = memory_of(out)}}), pattern(3000),
           with_a_bit_changed(pattern(3000)));
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_NE(text_.find("'key/0.0' was changed on its way here"), std::string::npos) << text_;
    EXPECT_FALSE(connection_->failed());
    answer(get_operation({{.key = "other"}}), pattern(3000), pattern(3000));
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(reply_of(*operation_), pattern(3000));
}

TEST_P(AlteredReply, IntoRows) {
    for (const std::uint64_t run : {10, 100}) {
        Bytes out(30 * 200);
        answer(get_operation({{.key = "k", .memory = rows(out, run, 200)}}), pattern(30 * run),
               with_a_bit_changed(pattern(30 * run)));
        EXPECT_EQ(failure(), ErrorKind::integrity);
        answer(get_operation({{.key = "k", .memory = rows(out, run, 200)}}), pattern(30 * run),
               pattern(30 * run));
        EXPECT_EQ(failure(), std::nullopt);
    }
}

TEST_P(AlteredReply, OfABatchNamesWhichItIs) {
    Bytes first(100);
    Bytes second(100);
    answer(get_operation({{.key = "a", .memory = memory_of(first)},
                          {.key = "b", .memory = memory_of(second)}}),
           pattern(100), pattern(100));
    reply(pattern(100), with_a_bit_changed(pattern(100)), 1);
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_NE(text_.find("'b' was changed"), std::string::npos) << text_;
}

// Whatever it says may be wrong, and so whose it is.
TEST_P(AlteredReply, InItsHeaderEndsTheConnection) {
    submit(get_operation({{.key = "k"}}));
    reply(pattern(100), pattern(100), 0, 8 * offsetof(ReplyHeader, item));
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_NE(text_.find("'k'"), std::string::npos) << text_;
    EXPECT_TRUE(eventually([&] { return connection_->failed(); }));
}

TEST_P(AlteredReply, WithoutSumsIsNone) {
    submit(get_operation({{.key = "k"}}));
    puppet_.send(Message::reply, raw(reply_header(token_, operation_->id, 0, Status::ok, 3)),
                 "abc");
    EXPECT_EQ(failure(), ErrorKind::integrity);
}

// ---------------------------------------------------------------------------------------------
// The same between a client and a server: the puppet is the client's side of it.

class AlteredRequest : public testing::TestWithParam<Puppet::Way> {
  protected:
    AlteredRequest() {
        both_.set("good", pattern(100));
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), token_, puppet_.address(),
                             "client");
        control_ = std::move(pair.other);
        puppet_.connect(address);
        send(Message::request, request(Op::ping), {}, {}, Puppet::Way::eager);
        EXPECT_EQ(answer(), Status::ok);
    }
    std::string request(Op op) { return raw(RequestHeader{token_, 1, op, 0, 1, kChecked}); }
    std::string value(std::uint64_t total, std::uint64_t offset, std::uint64_t length) {
        return raw(ValueHeader{token_, 1, 0, 0, total, kMinSegmentBytes, offset, length}) + "evil";
    }
    void send(Message message, std::string header, const Bytes& meant, const Bytes& sent,
              Puppet::Way way) {
        puppet_.received().clear();
        append_sums(header, crc32c(meant));
        puppet_.send(message, header,
                     std::string(reinterpret_cast<const char*>(sent.data()), sent.size()), way);
    }
    // The status of the answer, whose own sums must fit.
    std::optional<Status> answer() {
        if (!puppet_.until([&] { return !puppet_.received().empty(); }, kPatience)) {
            return std::nullopt;
        }
        const auto& [header, data] = puppet_.received().back();
        std::size_t size = header.size();
        EXPECT_EQ(take_sums(header.data(), size), crc32c(to_bytes(data)));
        EXPECT_EQ(size, sizeof(ReplyHeader));
        return read_header<ReplyHeader>(header.data(), size)->status;
    }
    bool is_thrown_out() {
        pollfd entry{.fd = control_.get(), .events = POLLIN, .revents = 0};
        return puppet_.until([&] { return poll(&entry, 1, 0) == 1; }, kPatience);
    }
    bool server_is_well() {
        both_.set("more", pattern(10'000));
        return both_.get("good") == pattern(100) && both_.get("more") == pattern(10'000) &&
               both_.get("evil") == std::nullopt;
    }

    Loopback both_;
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
};

INSTANTIATE_TEST_SUITE_P(All, AlteredRequest,
                         testing::Values(Puppet::Way::eager, Puppet::Way::rendezvous),
                         [](const auto& info) {
                             return info.param == Puppet::Way::eager ? "Eager" : "Rendezvous";
                         });

TEST_P(AlteredRequest, OfAValueIsRefused) {
    const Bytes bytes = pattern(3000);
    send(Message::value, value(3000, 0, 3000), bytes, with_a_bit_changed(bytes), GetParam());
    EXPECT_EQ(answer(), Status::altered);
    EXPECT_TRUE(server_is_well());
    send(Message::value, value(3000, 0, 3000), bytes, bytes, GetParam());
    EXPECT_EQ(answer(), Status::ok);
    EXPECT_EQ(both_.get("evil"), bytes);
}

TEST_P(AlteredRequest, OfOneSegmentOfAValueIsRefused) {
    const Bytes bytes = pattern(4096);
    send(Message::value, value(3 * 4096, 0, 4096), bytes, bytes, GetParam());
    send(Message::value, value(3 * 4096, 4096, 4096), bytes, with_a_bit_changed(bytes), GetParam());
    EXPECT_EQ(answer(), Status::altered);
    send(Message::value, value(3 * 4096, 2 * 4096, 4096), bytes, bytes, GetParam());
    EXPECT_TRUE(server_is_well());
}

TEST_P(AlteredRequest, OfAKeyEndsTheSession) {
    const Bytes bytes = pattern(3000);
    std::string header = value(3000, 0, 3000);
    append_sums(header, crc32c(bytes));
    header[sizeof(ValueHeader)] ^= 1;
    puppet_.send(Message::value, header,
                 std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                 GetParam());
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_P(AlteredRequest, WithoutSumsEndsTheSession) {
    const Bytes bytes = pattern(3000);
    puppet_.send(Message::value, value(3000, 0, 3000),
                 std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                 GetParam());
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_P(AlteredRequest, InItsBodyIsRefused) {
    const Bytes body = to_bytes(strings({"good"}));
    send(Message::request, request(Op::remove), body, with_a_bit_changed(body), Puppet::Way::eager);
    EXPECT_EQ(answer(), Status::altered);
    EXPECT_TRUE(server_is_well());
}

TEST_P(AlteredRequest, MayNotBeMixedWithOthers) {
    puppet_.received().clear();
    puppet_.send(Message::request, raw(RequestHeader{token_, 1, Op::ping, 0, 1, 0}));
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

// A client that wants none sends none, and gets none.
TEST(Unchecked, MessagesHaveNoSums) {
    Loopback both;
    const Token token = new_token();
    Puppet puppet;
    ControlPair pair = control_pair();
    auto worker = both.client->open(-1, SharedMemory::on);
    const std::string address = worker->address();
    const auto connection = both.client->attach(std::move(worker), std::move(pair.one), token,
                                                puppet.address(), "server", false);
    puppet.meet(address);
    Bytes bytes(10);
    const auto operation = set_operation({{"k", memory_of(bytes)}});
    both.client->submit(connection, operation);
    ASSERT_TRUE(puppet.until([&] { return !puppet.received().empty(); }));
    EXPECT_EQ(puppet.received()[0].header.size(), sizeof(ValueHeader) + 1);
    puppet.send(Message::reply, raw(reply_header(token, operation->id, 0, Status::ok)));
    EXPECT_TRUE(puppet.until([&] { return operation->done(); }));
    EXPECT_NO_THROW(finish(operation));
}

}  // namespace
}  // namespace ucxstore::test

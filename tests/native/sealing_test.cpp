// Encryption of messages: what was sent arrives, once and as it was; anything else is an error, and
// never a value.
#include "protocol/sealing.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "loopback.hpp"
#include "storage/directory.hpp"

namespace ucxstore::test {
namespace {

SessionKeys session_keys(std::uint8_t first = 1) {
    SessionKeys keys{};
    for (std::size_t i = 0; i < keys.send.size(); ++i) {
        keys.send[i] = static_cast<std::uint8_t>(first + i);
        keys.receive[i] = static_cast<std::uint8_t>(first + 100 + i);
    }
    return keys;
}

SessionKeys turned(const SessionKeys& keys) { return {keys.receive, keys.send}; }

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

std::string text_of(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A message as it is sent.
struct Sent {
    std::string header;
    std::string data;
};

Sent sealed(Sealer& sealer, Message kind, std::string header, std::string data) {
    const std::uint64_t number = sealer.seal_header(kind, header, data.size());
    if (data.empty()) {
        return {header, data};
    }
    const auto text = sealer.data(number, data.size());
    std::string out(sealed_bytes(data.size()), '\0');
    auto* const target = reinterpret_cast<std::byte*>(out.data());
    text->seal(bytes_of(data).data(), target, data.size());
    text->take_tag({target + data.size(), Aead::kTagBytes});
    return {header, out};
}

std::optional<std::string> opened(Opener& opener, Message kind, const Sent& sent) {
    const auto message = opener.open_header(kind, bytes_of(sent.header), sent.data.size());
    if (!message) {
        return std::nullopt;
    }
    const auto data = opener.open_data(message->data, bytes_of(sent.data));
    return data ? std::optional(message->header + "|" + *data) : std::nullopt;
}

// Test case 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega).
TEST(Aead, IsAes256Gcm) {
    const auto from_hex = [](std::string_view hex) {
        std::string text;
        for (std::size_t i = 0; i < hex.size(); i += 2) {
            text.push_back(
                static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
        }
        return text;
    };
    Aead::Key key;
    std::memcpy(key.data(),
                from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308").data(),
                key.size());
    Aead::Nonce nonce;
    std::memcpy(nonce.data(), from_hex("cafebabefacedbaddecaf888").data(), nonce.size());
    const std::string beside = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    const std::string plain = from_hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449"
        "a6b525b16aedf5aa0de657ba637b39");
    const std::string expected = from_hex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056"
        "828838c5f61e6393ba7a0abcc9f662");
    Aead aead(key, Aead::Way::seal);
    ASSERT_TRUE(aead.begin(nonce, bytes_of(beside)));
    std::string out(plain.size(), '\0');
    for (std::size_t at = 0; at < plain.size(); at += 7) {  // in parts
        const std::size_t part = std::min<std::size_t>(7, plain.size() - at);
        ASSERT_TRUE(aead.update(bytes_of(plain).data() + at,
                                reinterpret_cast<std::byte*>(out.data()) + at, part));
    }
    Aead::Tag tag{};
    ASSERT_TRUE(aead.end(tag));
    EXPECT_EQ(out, expected);
    EXPECT_EQ(std::memcmp(tag.data(), from_hex("76fc6ece0f4e1768cddf8853bb2d551b").data(), 16), 0);
}

TEST(Agreement, IsOneSecret) {
    const Agreement one;
    const Agreement other;
    EXPECT_NE(one.public_key(), other.public_key());
    EXPECT_EQ(one.secret_with(other.public_key()), other.secret_with(one.public_key()));
    EXPECT_THROW(static_cast<void>(one.secret_with(Agreement::Bytes{})), Error);
}

TEST(Sealing, OpensWhatWasSealed) {
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    for (const std::size_t size : {0, 1, 15, 16, 17, 5000}) {
        const std::string data = text_of(pattern(size));
        const Sent sent = sealed(sealer, Message::value, "what it says", data);
        EXPECT_EQ(sent.data.size(), size == 0 ? 0 : size + 16);
        EXPECT_EQ(sent.header.find("what"), std::string::npos);
        EXPECT_EQ(opened(opener, Message::value, sent), "what it says|" + data);
    }
}

TEST(Sealing, AnyBitIsNoticed) {
    Sealer sealer(session_keys().send);
    const Sent sent = sealed(sealer, Message::value, "header", "the data of it");
    const auto is_noticed = [](const Sent& altered, Message kind = Message::value) {
        Opener opener(session_keys().send);
        return !opened(opener, kind, altered);
    };
    EXPECT_FALSE(is_noticed(sent));
    const auto each_bit = [&](std::string Sent::* part) {
        for (std::size_t bit = 0; bit < 8 * (sent.*part).size(); ++bit) {
            Sent altered = sent;
            (altered.*part)[bit / 8] =
                static_cast<char>((altered.*part)[bit / 8] ^ (1 << (bit % 8)));
            EXPECT_TRUE(is_noticed(altered)) << bit;
        }
        for (std::size_t size = 0; size < (sent.*part).size(); ++size) {  // cut short
            Sent altered = sent;
            (altered.*part).resize(size);
            EXPECT_TRUE(is_noticed(altered)) << size;
        }
        Sent longer = sent;
        (longer.*part).push_back('x');
        EXPECT_TRUE(is_noticed(longer));
    };
    each_bit(&Sent::header);
    each_bit(&Sent::data);
    EXPECT_TRUE(is_noticed(sent, Message::request));  // another kind of message
    Opener other(session_keys().receive);             // sent back to its sender
    EXPECT_FALSE(opened(other, Message::value, sent));
}

TEST(Sealing, DataOfAnotherMessageIsNoticed) {
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    Sent one = sealed(sealer, Message::reply, "one", "first");
    Sent other = sealed(sealer, Message::reply, "other", "other");
    std::swap(one.data, other.data);
    EXPECT_EQ(opened(opener, Message::reply, one), std::nullopt);
    EXPECT_EQ(opened(opener, Message::reply, other), std::nullopt);
}

TEST(Sealing, EachMessageComesOnce) {
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    std::vector<Sent> sent;
    for (int i = 0; i < 100; ++i) {
        sent.push_back(sealed(sealer, Message::reply, "h", std::to_string(i)));
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {  // as over several lanes
        const std::size_t at = i ^ 3;
        EXPECT_EQ(opened(opener, Message::reply, sent[at]), "h|" + std::to_string(at));
        EXPECT_EQ(opened(opener, Message::reply, sent[at]), std::nullopt);
    }
    for (const Sent& again : sent) {
        EXPECT_EQ(opened(opener, Message::reply, again), std::nullopt);
    }
}

// For want of memory, a message can be numbered and then not sent.
TEST(Sealing, MessagesMayStayAwayForGood) {
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    const Sent late = sealed(sealer, Message::reply, "late", "");
    for (int i = 0; i < 70'000; ++i) {
        const Sent sent = sealed(sealer, Message::reply, "h", "");
        if (i % 2 == 0) {
            ASSERT_EQ(opened(opener, Message::reply, sent), "h|") << i;
        }
    }
    for (int i = 0; i < 70'000; ++i) {
        ASSERT_EQ(opened(opener, Message::reply, sealed(sealer, Message::reply, "h", "")), "h|")
            << i;
    }
    EXPECT_EQ(opened(opener, Message::reply, late), std::nullopt);
}

// As where fragments go over several lanes.
TEST(Sealing, FragmentsInAnyOrder) {
    Sealer sealer(session_keys().send);
    const std::string data = text_of(pattern(1000));
    const Sent sent = sealed(sealer, Message::reply, "h", data);
    const std::size_t cuts[] = {0, 300, 700, 1005, 1016};
    std::vector<int> order = {0, 1, 2, 3};
    do {
        Opener opener(session_keys().send);
        const auto message =
            opener.open_header(Message::reply, bytes_of(sent.header), sent.data.size());
        ASSERT_TRUE(message);
        const auto text = opener.data(message->data);
        std::string out(1000, '\0');
        const auto open = [&](std::uint64_t offset, std::span<const std::byte> fragment) {
            text->open(fragment.data(), reinterpret_cast<std::byte*>(out.data()) + offset,
                       fragment.size());
        };
        for (const int one : order) {
            EXPECT_FALSE(text->is_whole());
            text->add(cuts[one], bytes_of(sent.data).subspan(cuts[one], cuts[one + 1] - cuts[one]),
                      open);
        }
        EXPECT_TRUE(text->is_whole());
        EXPECT_EQ(out, data);
        text->add(0, bytes_of(sent.data).first(10), open);  // once more
        EXPECT_FALSE(text->is_whole());
    } while (std::ranges::next_permutation(order).found);
}

// A get of several byte ranges is one message, however long.
TEST(Sealing, ManyFragmentsMayWaitForTheFirst) {
    constexpr std::size_t kFragment = 1 << 20;
    constexpr std::size_t kSize = kSegmentBytes + 5 * kFragment;
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    const std::string data = text_of(pattern(kSize));
    const Sent sent = sealed(sealer, Message::reply, "h", data);
    const auto message =
        opener.open_header(Message::reply, bytes_of(sent.header), sent.data.size());
    ASSERT_TRUE(message);
    const auto text = opener.data(message->data);
    std::string out(kSize, '\0');
    for (std::size_t at = kSize;; at -= kFragment) {
        text->add(at, bytes_of(sent.data).subspan(at, std::min(kFragment, sent.data.size() - at)),
                  [&](std::uint64_t offset, std::span<const std::byte> fragment) {
                      text->open(fragment.data(), reinterpret_cast<std::byte*>(out.data()) + offset,
                                 fragment.size());
                  });
        if (at == 0) {
            break;
        }
    }
    EXPECT_TRUE(text->is_whole());
    EXPECT_EQ(out, data);
}

// Python's ssl would take it for one of its own.
TEST(Sealing, NoErrorIsLeftInOpenSsl) {
    void* const library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    const auto peek = reinterpret_cast<unsigned long (*)()>(dlsym(library, "ERR_peek_error"));
    ASSERT_NE(peek, nullptr);
    const Agreement one;
    EXPECT_THROW(static_cast<void>(one.secret_with(Agreement::Bytes{})), Error);
    EXPECT_EQ(peek(), 0u);
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().receive);
    EXPECT_FALSE(opened(opener, Message::value, sealed(sealer, Message::value, "h", "data")));
    EXPECT_EQ(peek(), 0u);
    dlclose(library);
}

// ---------------------------------------------------------------------------------------------
// Both ends are good.

class Encrypted : public testing::TestWithParam<std::tuple<const char*, bool>> {
  protected:
    Encrypted() {
        const auto& [tls, directory] = GetParam();
        const Options options{{"TLS", tls}};
        both_ = std::make_unique<Loopback>(
            options, false,
            directory ? std::shared_ptr<Storage>(
                            std::make_shared<DirectoryStorage>(folder_.path(), Durability::none))
                      : nullptr);
        both_->connection = both_->connect(*both_->client, false, session_keys());
    }
    ~Encrypted() override { both_->connection.reset(); }

    TemporaryDirectory folder_;
    std::unique_ptr<Loopback> both_;
};

INSTANTIATE_TEST_SUITE_P(All, Encrypted,
                         testing::Combine(testing::Values("tcp", "sm,self"), testing::Bool()),
                         [](const auto& info) {
                             return std::string(std::get<0>(info.param)).substr(0, 2) +
                                    (std::get<1>(info.param) ? "Directory" : "Memory");
                         });

TEST_P(Encrypted, ValuesOfAnySize) {
    EXPECT_TRUE(both_->connection->encrypted());
    EXPECT_TRUE(both_->connection->checked());
    constexpr std::uint64_t kSizes[] = {0,      1,       4095,    4096,          4097,
                                        65'536, 100'000, 700'001, (16 << 20) + 3};
    for (const std::uint64_t size : kSizes) {
        const std::string key = "k" + std::to_string(size);
        both_->set(key, pattern(size));
        EXPECT_EQ(both_->get(key), pattern(size)) << size;
        EXPECT_EQ(both_->get(key), pattern(size)) << size;
        EXPECT_EQ(both_->stat(key), size);
    }
    EXPECT_EQ(both_->get("none"), std::nullopt);
}

TEST_P(Encrypted, ManyAtOnce) {
    std::vector<Bytes> values;
    std::vector<Set> sets;
    std::vector<Get> gets;
    std::vector<Bytes> outs(300);
    for (std::size_t i = 0; i < outs.size(); ++i) {
        values.push_back(pattern(1000 + 97 * i));
    }
    for (std::size_t i = 0; i < outs.size(); ++i) {
        const std::string key = "many/" + std::to_string(i);
        sets.push_back({key, memory_of(values[i])});
        outs[i].resize(values[i].size());
        gets.push_back({.key = key, .memory = memory_of(outs[i])});
    }
    both_->run(set_operation(sets));
    both_->run(get_operation(gets));
    EXPECT_EQ(outs, values);
}

TEST_P(Encrypted, RowsToRows) {
    for (const std::uint64_t run : {4, 300, 5000, 70'000}) {
        const auto stride = static_cast<std::int64_t>(run + 100);
        Bytes from = pattern(static_cast<std::uint64_t>(stride) * 40);
        const Dim dim{40, stride};
        const auto rows = [&](Bytes& bytes) {
            return Memory(bytes.data(), Layout::strided(0, run, {&dim, 1}));
        };
        both_->run(set_operation({{"rows", rows(from)}}));
        Bytes to(from.size());
        both_->run(get_operation({{.key = "rows", .memory = rows(to)}}));
        Bytes expected(from.size());
        for (std::size_t row = 0; row < 40; ++row) {
            const auto at = static_cast<std::ptrdiff_t>(row) * stride;
            std::copy_n(from.begin() + at, run, expected.begin() + at);
        }
        EXPECT_EQ(to, expected) << run;
    }
}

// ---------------------------------------------------------------------------------------------
// A network that changes bits, or somebody who sends what he likes: the puppet.

class Forger : public testing::Test {
  protected:
    explicit Forger(Puppet::Way way) : way_(way) {
        ControlPair pair = control_pair();
        auto worker = both_.client->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        connection_ = both_.client->attach(std::move(worker), std::move(pair.one), token_,
                                           puppet_.address(), "server", false, session_keys());
        // Its first ping is sealed.
        EXPECT_TRUE(puppet_.until([&] { return !puppet_.received().empty(); }));
        puppet_.received().clear();
        puppet_.connect(address);
        control_ = std::move(pair.other);
    }
    // Asks for 5,000 bytes, and is answered with them.
    Sent answer() {
        operation_ = get_operation({{.key = "key/0.0", .memory = memory_of(out_)}});
        both_.client->submit(connection_, operation_);
        EXPECT_TRUE(puppet_.until([&] { return !puppet_.received().empty(); }));
        return sealed(sealer_, Message::reply,
                      raw(reply_header(token_, operation_->id, 0, Status::ok, out_.size())),
                      text_of(pattern(out_.size())));
    }
    void send(const Sent& sent) { puppet_.send(Message::reply, sent.header, sent.data, way_); }
    std::optional<ErrorKind> failure() {
        EXPECT_TRUE(puppet_.until([&] { return operation_->done(); }));
        try {
            finish(operation_);
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("'key/0.0'"), std::string::npos)
                << error.what();
            return error.kind();
        }
        return std::nullopt;
    }
    bool has_ended() {
        return eventually([&] { return connection_->failed(); });
    }

    const Puppet::Way way_;
    Loopback both_;
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
    std::shared_ptr<Connection> connection_;
    Sealer sealer_{session_keys().receive};
    std::shared_ptr<Operation> operation_;
    Bytes out_ = Bytes(5000, std::byte{7});
};

class ForgedReply : public Forger, public testing::WithParamInterface<Puppet::Way> {
  protected:
    ForgedReply() : Forger(GetParam()) {}
};

// And which byte of its data is another.
class ForgedData : public Forger,
                   public testing::WithParamInterface<std::tuple<Puppet::Way, std::size_t>> {
  protected:
    ForgedData() : Forger(std::get<0>(GetParam())) {}
};

INSTANTIATE_TEST_SUITE_P(All, ForgedData,
                         testing::Combine(testing::Values(Puppet::Way::eager,
                                                          Puppet::Way::rendezvous),
                                          testing::Values(0, 2500, 4999, 5000, 5015)));

INSTANTIATE_TEST_SUITE_P(All, ForgedReply,
                         testing::Values(Puppet::Way::eager, Puppet::Way::rendezvous),
                         [](const auto& info) {
                             return info.param == Puppet::Way::eager ? "Eager" : "Rendezvous";
                         });

TEST_P(ForgedReply, IsTakenWhereItIsNot) {
    send(answer());
    EXPECT_EQ(failure(), std::nullopt);
    EXPECT_EQ(out_, pattern(5000));
    EXPECT_FALSE(connection_->failed());
}

// Nothing of it is left, be it the value or another.
TEST_P(ForgedData, IsAnErrorThatLeavesNothing) {
    Sent sent = answer();
    const std::size_t at = std::get<1>(GetParam());
    sent.data[at] = static_cast<char>(sent.data[at] ^ 1);
    send(sent);
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_TRUE(has_ended());
    EXPECT_EQ(out_, way_ == Puppet::Way::eager ? Bytes(5000, std::byte{7}) : Bytes(5000));
}

TEST_P(ForgedReply, HeaderIsAnError) {
    Sent sent = answer();
    sent.header[20] = static_cast<char>(sent.header[20] ^ 1);
    send(sent);
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_TRUE(has_ended());
}

TEST_P(ForgedReply, InTheClearIsAnError) {
    answer();
    puppet_.send(Message::reply,
                 raw(reply_header(token_, operation_->id, 0, Status::ok, out_.size())),
                 text_of(pattern(5000)), way_);
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_TRUE(has_ended());
}

TEST_P(ForgedReply, AgainIsAnError) {
    const Sent sent = answer();
    send(sent);
    EXPECT_EQ(failure(), std::nullopt);
    puppet_.received().clear();
    answer();
    send(sent);
    EXPECT_EQ(failure(), ErrorKind::integrity);
    EXPECT_TRUE(has_ended());
}

class ForgedRequest : public testing::TestWithParam<Puppet::Way> {
  protected:
    ForgedRequest() {
        both_.set("good", pattern(100));
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), token_, puppet_.address(),
                             "client", turned(session_keys()));
        control_ = std::move(pair.other);
        puppet_.connect(address);
        send(Message::request, sealed(sealer_, Message::request, request(Op::ping), {}),
             Puppet::Way::eager);
        EXPECT_EQ(answer(), Status::ok);
    }
    std::string request(Op op) { return raw(RequestHeader{token_, 1, op, 0, 1, 0}); }
    Sent value() {
        return sealed(sealer_, Message::value,
                      raw(ValueHeader{token_, 1, 0, 0, 3000, kMinSegmentBytes, 0, 3000}) + "evil",
                      text_of(pattern(3000)));
    }
    void send(Message message, const Sent& sent, Puppet::Way way) {
        puppet_.received().clear();
        puppet_.send(message, sent.header, sent.data, way);
    }
    std::optional<Status> answer() {
        if (!puppet_.until([&] { return !puppet_.received().empty(); }, kPatience)) {
            return std::nullopt;
        }
        const auto& [header, data] = puppet_.received().back();
        const auto message = opener_.open_header(Message::reply, bytes_of(header), data.size());
        EXPECT_TRUE(message);
        return message ? std::optional(read_header<ReplyHeader>(message->header.data(),
                                                                message->header.size())
                                           ->status)
                       : std::nullopt;
    }
    bool is_thrown_out() {
        pollfd entry{.fd = control_.get(), .events = POLLIN, .revents = 0};
        return puppet_.until([&] { return poll(&entry, 1, 0) == 1; }, kPatience);
    }
    bool server_is_well() {
        both_.set("more", pattern(10'000));
        return both_.get("good") == pattern(100) && both_.get("more") == pattern(10'000);
    }

    Loopback both_;
    const Token token_ = new_token();
    Puppet puppet_;
    Fd control_;
    Sealer sealer_{session_keys().send};
    Opener opener_{session_keys().receive};
};

INSTANTIATE_TEST_SUITE_P(All, ForgedRequest,
                         testing::Values(Puppet::Way::eager, Puppet::Way::rendezvous),
                         [](const auto& info) {
                             return info.param == Puppet::Way::eager ? "Eager" : "Rendezvous";
                         });

TEST_P(ForgedRequest, IsTakenWhereItIsNot) {
    send(Message::value, value(), GetParam());
    EXPECT_EQ(answer(), Status::ok);
    EXPECT_EQ(both_.get("evil"), pattern(3000));
}

TEST_P(ForgedRequest, DataOfAValueIsRefused) {
    Sent sent = value();
    sent.data[1500] = static_cast<char>(sent.data[1500] ^ 1);
    send(Message::value, sent, GetParam());
    EXPECT_EQ(answer(), Status::altered);
    EXPECT_EQ(both_.get("evil"), std::nullopt);
    EXPECT_TRUE(server_is_well());
}

TEST_P(ForgedRequest, HeaderEndsTheSession) {
    Sent sent = value();
    sent.header[30] = static_cast<char>(sent.header[30] ^ 1);
    send(Message::value, sent, GetParam());
    EXPECT_TRUE(is_thrown_out());
    EXPECT_EQ(both_.get("evil"), std::nullopt);
    EXPECT_TRUE(server_is_well());
}

TEST_P(ForgedRequest, AgainEndsTheSession) {
    const Sent sent = value();
    send(Message::value, sent, GetParam());
    EXPECT_EQ(answer(), Status::ok);
    send(Message::value, sent, GetParam());
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_P(ForgedRequest, InTheClearEndsTheSession) {
    send(Message::request, {request(Op::stats), {}}, Puppet::Way::eager);
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_P(ForgedRequest, OfAnotherKindEndsTheSession) {
    send(Message::request, value(), Puppet::Way::eager);
    EXPECT_TRUE(is_thrown_out());
    EXPECT_TRUE(server_is_well());
}

TEST_P(ForgedRequest, BodyIsRefused) {
    Sent sent = sealed(sealer_, Message::request, request(Op::remove), strings({"good"}));
    sent.data[4] = static_cast<char>(sent.data[4] ^ 1);
    send(Message::request, sent, Puppet::Way::eager);
    EXPECT_EQ(answer(), Status::altered);
    EXPECT_TRUE(server_is_well());
}

}  // namespace
}  // namespace ucxstore::test

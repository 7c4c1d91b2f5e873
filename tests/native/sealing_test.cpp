// Encryption of messages: what was sent arrives, once and as it was; anything else is an error, and
// never a value.
#include "protocol/sealing.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support.hpp"

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
    std::string data(message->data.bytes, '\0');
    if (data.empty()) {
        return message->header + "|";
    }
    const auto text = opener.data(message->data);
    text->open(bytes_of(sent.data).data(), reinterpret_cast<std::byte*>(data.data()), data.size());
    text->add_tag(bytes_of(sent.data).subspan(data.size()));
    return text->is_whole() ? std::optional(message->header + "|" + data) : std::nullopt;
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

TEST(Sealing, EachMessageComesOnceAndInOrder) {
    Sealer sealer(session_keys().send);
    Opener opener(session_keys().send);
    std::vector<Sent> sent;
    for (int i = 0; i < 100; ++i) {
        sent.push_back(sealed(sealer, Message::reply, "h", std::to_string(i)));
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
        for (std::size_t other = 0; other < sent.size(); ++other) {
            if (other != i) {
                ASSERT_EQ(opened(opener, Message::reply, sent[other]), std::nullopt) << i;
            }
        }
        EXPECT_EQ(opened(opener, Message::reply, sent[i]), "h|" + std::to_string(i));
    }
    EXPECT_EQ(opened(opener, Message::reply, sent.back()), std::nullopt);
}

TEST(Sealing, InPartsOfAnySize) {
    Sealer sealer(session_keys().send);
    const std::string data = text_of(pattern(100));
    const Sent sent = sealed(sealer, Message::reply, "h", data);
    const auto bytes = bytes_of(sent.data);
    for (std::size_t part = 1; part <= bytes.size(); ++part) {
        Opener opener(session_keys().send);
        const auto message =
            opener.open_header(Message::reply, bytes_of(sent.header), sent.data.size());
        ASSERT_TRUE(message);
        const auto text = opener.data(message->data);
        std::string out(data.size(), '\0');
        for (std::size_t at = 0; at < bytes.size(); at += part) {
            EXPECT_FALSE(text->is_whole());
            const auto next = bytes.subspan(at, std::min(part, bytes.size() - at));
            const auto of_data = next.first(std::min(next.size(), text->left()));
            if (!of_data.empty()) {
                text->open(of_data.data(), reinterpret_cast<std::byte*>(out.data()) + at,
                           of_data.size());
            }
            text->add_tag(next.subspan(of_data.size()));
        }
        EXPECT_TRUE(text->is_whole());
        EXPECT_EQ(out, data);
    }
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

}  // namespace
}  // namespace ucxstore::test

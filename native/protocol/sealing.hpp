// Encryption of a session's messages: each header, and each message's data, is a text of its own
// (protocol/aead.hpp) under a nonce that no other text has. docs/wire.md has the bytes. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/aead.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::protocol {

// The keys of a session, as one side has them: each direction has a key of its own.
struct SessionKeys {
    Aead::Key send;
    Aead::Key receive;
};

// The bytes that the data of a message has more where it is sealed: none where it has none.
constexpr std::uint64_t sealed_bytes(std::uint64_t data) {
    return data == 0 ? 0 : data + Aead::kTagBytes;
}

// A text under way, which gives its Aead back.
class SealedText {
  public:
    SealedText(std::shared_ptr<AeadPool> pool, const Aead::Nonce& nonce,
               std::span<const std::byte> beside = {});
    SealedText(const SealedText&) = delete;
    SealedText& operator=(const SealedText&) = delete;
    ~SealedText() { pool_->give(std::move(aead_)); }

    // Once it has failed it fails for good; what was to be written then is zeros.
    void update(const std::byte* source, std::byte* target, std::size_t length) noexcept;
    bool end(Aead::Tag& tag) noexcept { return good_ && (good_ = aead_->end(tag)); }

  private:
    const std::shared_ptr<AeadPool> pool_;
    std::unique_ptr<Aead> aead_;
    bool good_;
};

// Seals a message's data, from its first byte to its last, and then gives its tag.
class SealedData {
  public:
    SealedData(std::shared_ptr<AeadPool> pool, const Aead::Nonce& nonce, std::uint64_t bytes)
        : text_(std::move(pool), nonce), bytes_(bytes) {}

    std::uint64_t bytes() const { return bytes_; }
    // Seals what comes next of the data.
    void seal(const std::byte* source, std::byte* target, std::size_t length) noexcept;
    // Of the data, those that are still to be sealed.
    std::uint64_t left() const { return bytes_ - std::min(bytes_, had_); }
    // Once all data is sealed: the next bytes of the tag.
    void take_tag(std::span<std::byte> target) noexcept;

  private:
    SealedText text_;
    const std::uint64_t bytes_;
    std::uint64_t had_ = 0;  // of data and tag
    Aead::Tag tag_{};
    bool has_tag_ = false;
};

// Opens a message's data as it comes. What is opened must not be believed before is_whole().
class OpenedData {
  public:
    OpenedData(std::shared_ptr<AeadPool> pool, const Aead::Nonce& nonce, std::uint64_t bytes)
        : text_(std::move(pool), nonce), bytes_(bytes) {}

    std::uint64_t bytes() const { return bytes_; }
    // Of the data, what is still to be opened.
    std::uint64_t left() const { return bytes_ - std::min(bytes_, had_); }
    // Opens what comes next of the data.
    void open(const std::byte* source, std::byte* target, std::size_t length) noexcept;
    // Once all data is opened: what comes next of the tag.
    void add_tag(std::span<const std::byte> tag) noexcept;
    // Whether all of it has come as it was sent.
    bool is_whole() const { return whole_; }

  private:
    SealedText text_;
    const std::uint64_t bytes_;
    std::uint64_t had_ = 0;  // of data and tag
    Aead::Tag tag_{};
    bool whole_ = false;
};

// The messages that a side sends: numbered, so that no nonce is used twice.
class Sealer {
  public:
    explicit Sealer(const Aead::Key& key)
        : pool_(std::make_shared<AeadPool>(key, Aead::Way::seal)) {}

    // Replaces the header of the next message, whose data has so many bytes, by what is sent of
    // it: its number, the sealed header, and the tag. Returns the number.
    std::uint64_t seal_header(Message kind, std::string& header, std::uint64_t data_bytes);
    // For the data of the message of this number, once.
    std::unique_ptr<SealedData> data(std::uint64_t number, std::uint64_t bytes);

  private:
    const std::shared_ptr<AeadPool> pool_;
    std::uint64_t next_ = 0;
};

// The messages that a side receives: each as it was sent, and in that order.
class Opener {
  public:
    explicit Opener(const Aead::Key& key)
        : pool_(std::make_shared<AeadPool>(key, Aead::Way::open)) {}

    // The data of a message: the message's number, and how many bytes there are.
    struct Data {
        std::uint64_t number;
        std::uint64_t bytes;
    };
    struct Opened {
        std::string header;
        Data data;
    };
    // nullopt where it is not the next header that was sent, with data of so many bytes as are
    // there.
    std::optional<Opened> open_header(Message kind, std::span<const std::byte> header,
                                      std::uint64_t sealed_data_bytes);
    // For the data of that message, once.
    std::unique_ptr<OpenedData> data(const Data& data);

  private:
    const std::shared_ptr<AeadPool> pool_;
    std::uint64_t next_ = 0;
};

// Both directions of a session, at one side.
struct Seals {
    explicit Seals(const SessionKeys& keys) : out(keys.send), in(keys.receive) {}

    Sealer out;
    Opener in;
};

}  // namespace ucxstore::protocol

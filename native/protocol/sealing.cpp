#include "protocol/sealing.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ucxstore::protocol {
namespace {

constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);

// The texts of a message.
enum class SealedPart : std::uint32_t { header = 0, data = 1 };

Aead::Nonce nonce_of(std::uint64_t number, SealedPart part) {
    Aead::Nonce nonce;
    std::memcpy(nonce.data(), &number, sizeof(number));
    std::memcpy(nonce.data() + sizeof(number), &part, sizeof(part));
    return nonce;
}

// What a header's tag covers beside the header.
struct Beside {
    std::uint64_t kind;
    std::uint64_t data_bytes;
};
static_assert(sizeof(Beside) == 16);

SealedText header_text(const std::shared_ptr<AeadPool>& pool, std::uint64_t number, Message kind,
                       std::uint64_t data_bytes) {
    const Beside beside{static_cast<std::uint64_t>(kind), data_bytes};
    return {pool, nonce_of(number, SealedPart::header), std::as_bytes(std::span(&beside, 1))};
}

std::byte* writable(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

}  // namespace

SealedText::SealedText(std::shared_ptr<AeadPool> pool, const Aead::Nonce& nonce,
                       std::span<const std::byte> beside)
    : pool_(std::move(pool)), aead_(pool_->take()), good_(aead_->begin(nonce, beside)) {}

void SealedText::update(const std::byte* source, std::byte* target, std::size_t length) noexcept {
    good_ = good_ && aead_->update(source, target, length);
    if (!good_) {
        std::fill_n(target, length, std::byte{0});
    }
}

void SealedData::seal(const std::byte* source, std::byte* target, std::size_t length) noexcept {
    text_.update(source, target, length);
    had_ += length;
}

void SealedData::take_tag(std::span<std::byte> target) noexcept {
    if (!std::exchange(has_tag_, true) && !text_.end(tag_)) {
        tag_.fill(0);
    }
    std::memcpy(target.data(), tag_.data() + (had_ - bytes_), target.size());
    had_ += target.size();
}

void OpenedData::open(const std::byte* source, std::byte* target, std::size_t length) noexcept {
    text_.update(source, target, length);
    had_ += length;
}

void OpenedData::add_tag(std::span<const std::byte> tag) noexcept {
    if (tag.empty()) {
        return;
    }
    const std::uint64_t at = had_ - bytes_;
    std::memcpy(tag_.data() + at, tag.data(), tag.size());
    had_ += tag.size();
    if (at + tag.size() == tag_.size()) {
        whole_ = text_.end(tag_);
    }
}

std::uint64_t Sealer::seal_header(Message kind, std::string& header, std::uint64_t data_bytes) {
    const std::uint64_t number = next_++;
    SealedText text = header_text(pool_, number, kind, data_bytes);
    text.update(writable(header), writable(header), header.size());
    Aead::Tag tag{};
    if (!text.end(tag)) {
        header.assign(header.size(), '\0');
    }
    header.insert(0, reinterpret_cast<const char*>(&number), kNumberBytes);
    header.append(reinterpret_cast<const char*>(tag.data()), tag.size());
    return number;
}

std::unique_ptr<SealedData> Sealer::data(std::uint64_t number, std::uint64_t bytes) {
    return std::make_unique<SealedData>(pool_, nonce_of(number, SealedPart::data), bytes);
}

std::optional<Opener::Opened> Opener::open_header(Message kind, std::span<const std::byte> header,
                                                  std::uint64_t sealed_data_bytes) {
    constexpr std::size_t kAround = kNumberBytes + Aead::kTagBytes;
    if (header.size() < kAround ||
        (sealed_data_bytes > 0 && sealed_data_bytes <= Aead::kTagBytes)) {
        return std::nullopt;
    }
    Opened opened;
    std::memcpy(&opened.data.number, header.data(), kNumberBytes);
    opened.data.bytes = sealed_data_bytes == 0 ? 0 : sealed_data_bytes - Aead::kTagBytes;
    opened.header.resize(header.size() - kAround);
    SealedText text = header_text(pool_, opened.data.number, kind, opened.data.bytes);
    text.update(header.data() + kNumberBytes, writable(opened.header), opened.header.size());
    Aead::Tag tag;
    std::memcpy(tag.data(), header.data() + header.size() - tag.size(), tag.size());
    if (!text.end(tag) || opened.data.number != next_) {
        return std::nullopt;
    }
    ++next_;
    return opened;
}

std::unique_ptr<OpenedData> Opener::data(const Data& data) {
    return std::make_unique<OpenedData>(pool_, nonce_of(data.number, SealedPart::data), data.bytes);
}

}  // namespace ucxstore::protocol

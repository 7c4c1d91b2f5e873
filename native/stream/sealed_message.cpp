#include "stream/sealed_message.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ucxstore::stream {
namespace {

// So many bytes are sealed, and then go at once. With fewer, each side waits for the other one more
// often than it gains by what is still in a cache: of 64 KiB a client gets three quarters as much.
constexpr std::uint64_t kStagedBytes = 1024 * 1024;

// Where pieces are shorter than this on the average, they are sealed or opened in blocks, which
// are copied: to begin anew at each piece takes as long as 200 bytes.
constexpr std::uint64_t kLeastPiece = 1024;
constexpr std::size_t kBlock = 16 * 1024;

bool is_finely_cut(const memory::Copier& copier, std::size_t pieces) {
    return copier.size() < pieces * kLeastPiece;
}

}  // namespace

// ---- out ----

SealedMessage::SealedMessage(protocol::Sealer& sealer, FrameKind kind, std::string header,
                             std::vector<ucp_dt_iov_t> pieces, std::string body)
    : own_(std::move(body)), pieces_(std::move(pieces)), copier_({}) {
    if (pieces_.empty()) {
        pieces_ = {{own_.data(), own_.size()}};
    }
    copier_ = memory::Copier(pieces_);
    const std::uint64_t number =
        sealer.seal_header(static_cast<protocol::Message>(kind), header, copier_.size());
    if (copier_.size() > 0) {
        data_ = sealer.data(number, copier_.size());
    }
    const Frame frame{kind, 0, static_cast<std::uint32_t>(header.size()), 0,
                      protocol::sealed_bytes(copier_.size())};
    head_.assign(reinterpret_cast<const char*>(&frame), sizeof(frame));
    head_ += header;
}

bool SealedMessage::is_at_end() const {
    return head_.empty() && at_ == protocol::sealed_bytes(copier_.size());
}

void SealedMessage::next(std::vector<std::byte>& out) {
    const std::uint64_t left = protocol::sealed_bytes(copier_.size()) - at_;
    const std::uint64_t length = std::min(left, kStagedBytes);
    out.resize(head_.size() + length);
    std::memcpy(out.data(), head_.data(), head_.size());
    const auto body = std::span(out).subspan(head_.size());
    head_.clear();
    if (data_ == nullptr) {
        return;
    }
    const auto data = body.first(std::min(length, data_->left()));
    seal(data);
    if (data.size() < length) {
        data_->take_tag(body.subspan(data.size()));
    }
    at_ += length;
}

void SealedMessage::seal(std::span<std::byte> target) {
    const bool in_blocks = is_finely_cut(copier_, pieces_.size());
    std::uint64_t offset = at_;
    while (!target.empty()) {
        const auto source = copier_.at(offset);
        const std::size_t part = std::min(in_blocks ? kBlock : source.size(), target.size());
        if (in_blocks) {
            copier_.gather(offset, target.data(), part, memory::Write::cached);
        }
        data_->seal(in_blocks ? target.data() : source.data(), target.data(), part);
        offset += part;
        target = target.subspan(part);
    }
}

void SealedMessage::forget_body() {
    std::string rest(copier_.size(), '\0');
    const std::uint64_t sealed = std::min<std::uint64_t>(at_, rest.size());
    copier_.gather(sealed, reinterpret_cast<std::byte*>(rest.data()) + sealed, rest.size() - sealed,
                   memory::Write::cached);
    own_ = std::move(rest);
    pieces_ = {{own_.data(), own_.size()}};
    copier_ = memory::Copier(pieces_);
}

// ---- in ----

OpenedBody::OpenedBody(protocol::Opener& opener, const protocol::Opener::Data& data)
    : data_(opener.data(data)) {}

void OpenedBody::place(std::vector<ucp_dt_iov_t> pieces) {
    pieces_ = std::move(pieces);
    copier_ = memory::Copier(pieces_);
}

void OpenedBody::take(std::span<std::byte> sealed) {
    const auto data = sealed.first(std::min(sealed.size(), data_->left()));
    open(data_->bytes() - data_->left(), data);
    data_->add_tag(sealed.subspan(data.size()));
}

void OpenedBody::open(std::uint64_t offset, std::span<std::byte> data) {
    const bool in_place = is_finely_cut(copier_, pieces_.size()) || copier_.size() == 0;
    while (!data.empty()) {
        if (in_place) {
            const std::size_t part = std::min(kBlock, data.size());
            data_->open(data.data(), data.data(), part);
            copier_.scatter(offset, data.data(), part, memory::Write::cached);
            offset += part;
            data = data.subspan(part);
            continue;
        }
        const auto target = copier_.at(offset);
        const std::size_t part = std::min(target.size(), data.size());
        data_->open(data.data(), target.data(), part);
        offset += part;
        data = data.subspan(part);
    }
}

bool OpenedBody::end() {
    if (data_->is_whole()) {
        return true;
    }
    for (const ucp_dt_iov_t& piece : pieces_) {
        std::memset(piece.buffer, 0, piece.length);
    }
    return false;
}

}  // namespace ucxstore::stream

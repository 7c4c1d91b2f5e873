#include "sessions/pending_get.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "memory/copier.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::sessions {

namespace {

// Values of this size on are read as they are sent. Below, a copy more costs less than a message.
constexpr std::uint64_t kReadAsSent = 512 << 10;

// So many pieces a segment has at the most: they are listed, and copied, within a turn.
constexpr std::uint64_t kMostPieces = 16 << 10;
constexpr std::uint64_t kMostReads = 1024;  // where each may be read by a call of its own

// Shorter runs are read many at a time, with what lies between them.
constexpr std::uint64_t kLeastRun = 4096;

std::uint64_t divided_up(std::uint64_t bytes, std::uint64_t by) { return (bytes + by - 1) / by; }

}  // namespace

std::uint64_t PendingGet::held_bytes() const {
    std::uint64_t bytes = sizeof(*this) + wanted_.key.size();
    bytes += recipe_ == nullptr ? 0 : recipe_->size();  // as if no others had it
    if (const auto* ranges = std::get_if<std::vector<protocol::Range>>(&wanted_.selection)) {
        bytes += ranges->size() * sizeof(protocol::Range);
    } else {
        const auto& box = std::get<protocol::Layout>(wanted_.selection);
        bytes +=
            box.offsets().size() * sizeof(std::int64_t) + box.dims().size() * sizeof(protocol::Dim);
    }
    return bytes;
}

std::string PendingGet::stored_key() const {
    const auto name = recipe_ == nullptr ? std::nullopt : protocol::decoded_name(wanted_.key);
    return name ? std::string(name->key) : wanted_.key;
}

protocol::Selection PendingGet::stored_selection() const {
    const auto name = recipe_ == nullptr ? std::nullopt : protocol::decoded_name(wanted_.key);
    if (!name) {
        return wanted_.selection;
    }
    if (name->bytes.all) {
        return {};
    }
    return std::vector<protocol::Range>{
        {protocol::Range::Kind::range, name->bytes.begin, name->bytes.end}};
}

void PendingGet::charge(Account& account) {
    counted_ = account.hold_anyway(Held::gets, 1);
    charged_ = account.hold_anyway(Held::get_bytes, held_bytes());
}

void PendingGet::charge_value(Account& account) {
    value_bytes_ = account.hold_anyway(Held::fetched_bytes,
                                       value_->pieced() ? selected_.size : value_->size());
}

std::optional<protocol::Refusal> PendingGet::open(std::shared_ptr<const memory::Region> value) {
    if (value == nullptr) {
        return protocol::Refusal{protocol::Status::missing};
    }
    auto selected = protocol::select(wanted_, value->size(), value->version());
    if (const auto* refusal = std::get_if<protocol::Refusal>(&selected)) {
        return *refusal;
    }
    value_ = std::move(value);
    selected_ = std::move(std::get<protocol::Selected>(selected));
    const std::uint64_t most = std::max(value_->most_at_once(), protocol::kMinSegmentBytes);
    step_ =
        std::min({std::max(selected_.size, protocol::kMinSegmentBytes), longest_segment(), most});
    step_ = std::max(step_, selected_.size / protocol::kMaxSegments + 1);
    return std::nullopt;
}

std::uint64_t PendingGet::longest_segment() const {
    std::uint64_t bytes = std::min(wanted_.segment, protocol::kSegmentBytes);
    std::uint64_t run = selected_.layout.run();
    if (selected_.several) {
        run = selected_.size / std::max<std::uint64_t>(selected_.spans.size(), 1);
    } else {
        bytes = std::min(bytes, protocol::segment_bytes(selected_.layout));
    }
    const std::uint64_t most = value_->unread() ? kMostReads : kMostPieces;
    while (bytes / std::max<std::uint64_t>(run, 1) > most &&
           bytes / 2 >= protocol::kMinSegmentBytes) {
        bytes /= 2;
    }
    return bytes;
}

// Where bytes are read into memory first.
std::uint64_t PendingGet::next_is_read() const {
    const std::uint64_t length = std::min(step_, selected_.size - sent_);
    const bool as_sent = reading_ != nullptr && sent_ + length < selected_.size;
    return value_->pieced() && !as_sent && !loaded_ ? length : 0;
}

PendingGet::SpanPlace PendingGet::next_spans(std::uint64_t length,
                                             std::vector<ucp_dt_iov_t>& pieces) const {
    SpanPlace at_span = span_;
    for (std::uint64_t at = sent_; length > 0;) {
        const protocol::Span& span = selected_.spans[at_span.span];
        const std::uint64_t skipped = at - at_span.begin;
        const std::uint64_t part = std::min(span.length - skipped, length);
        pieces.push_back({value_->data() + span.begin + skipped, part});
        at += part;
        length -= part;
        if (skipped + part == span.length) {
            at_span.begin += span.length;
            ++at_span.span;
        }
    }
    return at_span;
}

std::vector<ucp_dt_iov_t> PendingGet::next_pieces() const {
    const std::uint64_t length = std::min(step_, selected_.size - sent_);
    std::vector<ucp_dt_iov_t> pieces;
    if (selected_.several) {
        next_spans(length, pieces);
    } else {
        selected_.layout.pieces(value_->data(), sent_, length, pieces);
    }
    return pieces;
}

void PendingGet::read_as_sent() {
    const std::uint64_t size = selected_.size;
    const std::uint64_t longest = longest_segment();
    if (!value_->unread() || value_->waits() || selected_.several ||
        std::min(size, longest) < kReadAsSent || size / selected_.layout.run_count() < kLeastRun) {
        return;
    }
    const std::uint64_t count = divided_up(size - kHeldBack, longest);
    if (count >= kHeldBack) {
        return;
    }
    step_ = divided_up(size - kHeldBack, count);
    reading_ = std::make_shared<Reading>();
}

Segment PendingGet::next(std::uint64_t least_piece) {
    const protocol::Layout& layout = selected_.layout;
    const std::uint64_t size = selected_.size;
    if (reading_ != nullptr && reading_->failure) {
        std::rethrow_exception(reading_->failure);
    }
    Segment segment;
    protocol::ReplyHeader& header = segment.header;
    header.request = id_.request;
    header.item = id_.item;
    header.status = protocol::Status::ok;
    header.value_size = value_->size();
    header.version = value_->version();
    header.reply_size = size;
    header.segment = step_;
    header.offset = sent_;
    header.length = std::min(step_, size - sent_);
    if (selected_.several) {
        span_ = next_spans(header.length, segment.pieces);
    } else if (layout.run_count() > 1 && size <= protocol::kEagerBytes && !value_->pieced()) {
        segment.packed.resize(layout.size());
        layout.pack(value_->data(), reinterpret_cast<std::byte*>(segment.packed.data()));
    } else {
        layout.pieces(value_->data(), header.offset, header.length, segment.pieces);
    }
    if (reading_ != nullptr && sent_ + header.length < size) {
        segment.reading = reading_;
    } else if (loaded_) {
        segment.pieces = std::move(loaded_->pieces);
        segment.owner = std::move(loaded_->owner);
        loaded_.reset();
    } else if (value_->pieced()) {
        segment.owner = value_->locate(segment.pieces);
    } else if (segment.pieces.size() > 1 && header.length / segment.pieces.size() < least_piece) {
        segment.packed.resize(header.length);
        memory::Copier(segment.pieces)
            .gather(0, reinterpret_cast<std::byte*>(segment.packed.data()), header.length,
                    memory::Write::cached);
        std::vector<ucp_dt_iov_t>().swap(segment.pieces);  // with its memory
    }
    sent_ += header.length;
    return segment;
}

}  // namespace ucxstore::sessions

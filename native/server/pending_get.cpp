#include "server/pending_get.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace ucxstore {

using wire::Status;

namespace {

// Values of this size on are read as they are sent. Below, a copy more costs less than a message.
constexpr std::uint64_t kReadAsSent = 512 << 10;

// Shorter runs are read many at a time, with what lies between them.
constexpr std::uint64_t kLeastRun = 4096;

std::uint64_t divided_up(std::uint64_t bytes, std::uint64_t by) { return (bytes + by - 1) / by; }

}  // namespace

std::uint64_t PendingGet::held_bytes() const {
    std::uint64_t bytes = sizeof(*this) + wanted_.key.size();
    if (const auto* ranges = std::get_if<std::vector<wire::Range>>(&wanted_.selection)) {
        bytes += ranges->size() * sizeof(wire::Range);
    } else {
        const auto& box = std::get<Layout>(wanted_.selection);
        bytes += box.offsets().size() * sizeof(std::int64_t) + box.dims().size() * sizeof(Dim);
    }
    return bytes;
}

bool PendingGet::charge(const std::shared_ptr<GetBudget::Account>& account) {
    const std::uint64_t bytes = held_bytes();
    if (!account->add(bytes)) {
        return false;
    }
    charged_ = {account, bytes};
    return true;
}

std::optional<wire::Refusal> PendingGet::open(std::shared_ptr<const Region> value) {
    if (value == nullptr) {
        return wire::Refusal{Status::missing};
    }
    auto selected = wire::select(wanted_, value->size(), value->version());
    if (const auto* refusal = std::get_if<wire::Refusal>(&selected)) {
        return *refusal;
    }
    value_ = std::move(value);
    selected_ = std::move(std::get<wire::Selected>(selected));
    step_ = std::max(selected_.size, wire::kMinSegmentBytes);
    if (!selected_.several) {
        const std::uint64_t most = std::max({value_->most_at_once(), wire::kMinSegmentBytes,
                                             selected_.size / wire::kMaxSegments + 1});
        step_ = std::min({step_, longest_segment(), most});
    }  // else several byte ranges: one message, as they were one request
    return std::nullopt;
}

std::uint64_t PendingGet::longest_segment() const {
    return std::min(wanted_.segment, wire::segment_bytes(selected_.layout));
}

void PendingGet::read_as_sent() {
    const std::uint64_t size = selected_.size;
    const std::uint64_t longest = longest_segment();
    if (!value_->unread() || selected_.several || std::min(size, longest) < kReadAsSent ||
        size / selected_.layout.run_count() < kLeastRun) {
        return;
    }
    const std::uint64_t count = divided_up(size - kHeldBack, longest);
    if (count >= kHeldBack) {
        return;
    }
    step_ = divided_up(size - kHeldBack, count);
    reading_ = std::make_shared<Reading>();
}

Segment PendingGet::next() {
    const Layout& layout = selected_.layout;
    const std::uint64_t size = selected_.size;
    if (reading_ != nullptr && reading_->failure) {
        std::rethrow_exception(reading_->failure);
    }
    Segment segment;
    wire::ReplyHeader& header = segment.header;
    header.request = id_.request;
    header.item = id_.item;
    header.status = Status::ok;
    header.value_size = value_->size();
    header.version = value_->version();
    header.reply_size = size;
    header.segment = step_;
    header.offset = sent_;
    header.length = std::min(step_, size - sent_);
    if (selected_.several) {
        for (const wire::Span& span : selected_.spans) {
            segment.pieces.push_back({value_->data() + span.begin, span.length});
        }
    } else if (layout.run_count() > 1 && size <= wire::kEagerBytes && !value_->pieced()) {
        segment.packed.resize(layout.size());
        layout.pack(value_->data(), reinterpret_cast<std::byte*>(segment.packed.data()));
    } else {
        layout.pieces(value_->data(), header.offset, header.length, segment.pieces);
    }
    if (reading_ != nullptr && sent_ + header.length < size) {
        segment.reading = reading_;
    } else if (value_->pieced()) {
        segment.owner = value_->locate(segment.pieces);
    }
    sent_ += header.length;
    return segment;
}

}  // namespace ucxstore

#include "server/pending_get.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace ucxstore {

using wire::Status;

std::optional<PendingGet::Refusal> PendingGet::open(std::shared_ptr<const Region> value) {
    if (value == nullptr) {
        return Refusal{Status::missing};
    }
    if (wanted_.version != wire::kAnyVersion && wanted_.version != value->version()) {
        return Refusal{Status::changed, value->size(), value->version()};
    }
    if (wanted_.expected != wire::kAnySize && wanted_.expected != value->size()) {
        return Refusal{Status::wrong_size, value->size()};
    }
    value_ = std::move(value);
    return choose();
}

std::optional<PendingGet::Refusal> PendingGet::choose() {
    const std::uint64_t value_size = value_->size();
    if (auto* box = std::get_if<Layout>(&wanted_.selection)) {
        // A box of strides 0 has bytes more than once, and could be larger than any value.
        if (!box->fits(value_size) || box->box_size() > value_size) {
            return Refusal{Status::bad_range, value_size};
        }
        size_ = box->size();
        layout_ = std::move(*box);
    } else if (const auto& ranges = std::get<std::vector<wire::Range>>(wanted_.selection);
               ranges.size() == 1) {
        const wire::Span span = wire::resolve(ranges[0], value_size);
        layout_ = Layout::contiguous(span.length, static_cast<std::int64_t>(span.begin));
        size_ = span.length;
    } else if (ranges.empty()) {
        layout_ = Layout::contiguous(value_size);
        size_ = value_size;
    } else {
        for (const wire::Range& range : ranges) {
            const wire::Span span = wire::resolve(range, value_size);
            size_ += span.length;
            if (span.length > 0) {
                ranges_.push_back({value_->data() + span.begin, span.length});
            }
        }
    }
    if (size_ > wanted_.limit) {
        return Refusal{Status::too_large, size_};
    }
    return std::nullopt;
}

wire::ReplyHeader PendingGet::next(std::vector<ucp_dt_iov_t>& pieces, std::string& packed) {
    std::uint64_t step = std::max(size_, wire::kMinSegmentBytes);
    if (ranges_.empty()) {
        step = std::min(wanted_.segment, wire::segment_bytes(layout_));
    }  // else several byte ranges: one message, as they were one request
    wire::ReplyHeader header{};
    header.request = id_.request;
    header.item = id_.item;
    header.status = Status::ok;
    header.value_size = value_->size();
    header.version = value_->version();
    header.reply_size = size_;
    header.segment = step;
    header.offset = sent_;
    header.length = std::min(step, size_ - sent_);
    if (!ranges_.empty()) {
        pieces = std::move(ranges_);
    } else if (layout_.run_count() > 1 && size_ <= wire::kEagerBytes && !value_->pieced()) {
        packed.resize(layout_.size());
        layout_.pack(value_->data(), reinterpret_cast<std::byte*>(packed.data()));
    } else {
        layout_.pieces(value_->data(), header.offset, header.length, pieces);
    }
    if (value_->pieced()) {
        value_->locate(pieces);
    }
    sent_ += header.length;
    return header;
}

}  // namespace ucxstore

#include "server/pending_get.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace ucxstore {

using wire::Status;

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
    return std::nullopt;
}

wire::ReplyHeader PendingGet::next(std::vector<ucp_dt_iov_t>& pieces, std::string& packed) {
    const Layout& layout = selected_.layout;
    const std::uint64_t size = selected_.size;
    std::uint64_t step = std::max(size, wire::kMinSegmentBytes);
    if (!selected_.several) {
        step = std::min(wanted_.segment, wire::segment_bytes(layout));
    }  // else several byte ranges: one message, as they were one request
    wire::ReplyHeader header{};
    header.request = id_.request;
    header.item = id_.item;
    header.status = Status::ok;
    header.value_size = value_->size();
    header.version = value_->version();
    header.reply_size = size;
    header.segment = step;
    header.offset = sent_;
    header.length = std::min(step, size - sent_);
    if (selected_.several) {
        for (const wire::Span& span : selected_.spans) {
            pieces.push_back({value_->data() + span.begin, span.length});
        }
    } else if (layout.run_count() > 1 && size <= wire::kEagerBytes && !value_->pieced()) {
        packed.resize(layout.size());
        layout.pack(value_->data(), reinterpret_cast<std::byte*>(packed.data()));
    } else {
        layout.pieces(value_->data(), header.offset, header.length, pieces);
    }
    if (value_->pieced()) {
        value_->locate(pieces);
    }
    sent_ += header.length;
    return header;
}

}  // namespace ucxstore

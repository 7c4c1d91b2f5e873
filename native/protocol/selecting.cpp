#include "protocol/selecting.hpp"

#include <algorithm>

namespace ucxstore::protocol {

std::variant<Selected, Refusal> select(const GetItem& wanted, std::uint64_t value_size,
                                       std::uint64_t version) {
    if (wanted.version != kAnyVersion && wanted.version != version) {
        return Refusal{Status::changed, value_size, version};
    }
    if (wanted.expected != kAnySize && wanted.expected != value_size) {
        return Refusal{Status::wrong_size, value_size};
    }
    Selected selected;
    if (const auto* box = std::get_if<Layout>(&wanted.selection)) {
        // A box of strides 0 has bytes more than once, and could be larger than any value.
        if (!box->fits(value_size) || box->box_size() > value_size) {
            return Refusal{Status::bad_range, value_size};
        }
        selected.layout = *box;
        selected.size = box->size();
    } else if (const auto& ranges = std::get<std::vector<Range>>(wanted.selection);
               ranges.size() == 1) {
        const Span span = resolve(ranges[0], value_size);
        selected.layout = Layout::contiguous(span.length, static_cast<std::int64_t>(span.begin));
        selected.size = span.length;
    } else if (ranges.empty()) {
        selected.layout = Layout::contiguous(value_size);
        selected.size = value_size;
    } else {
        selected.several = true;
        for (const Range& range : ranges) {
            const Span span = resolve(range, value_size);
            selected.size += span.length;
            if (span.length > 0) {
                selected.spans.push_back(span);
            }
        }
    }
    if (selected.size > std::min(wanted.limit, kMaxValueBytes)) {
        return Refusal{Status::too_large, selected.size};
    }
    return selected;
}

}  // namespace ucxstore::protocol

#include "client/item_memory.hpp"

#include <algorithm>
#include <utility>

#include "protocol/wire.hpp"

namespace ucxstore::client {

Memory::Memory(std::byte* base, protocol::Layout layout)
    : first_{base, std::move(layout)}, size_(first_.layout.size()) {}

Memory::Memory(std::vector<Part> parts) {
    if (!parts.empty()) {
        first_ = std::move(parts.front());
        parts.erase(parts.begin());
    }
    others_ = std::move(parts);
    size_ = first_.layout.size();
    for (const Part& part : others_) {
        size_ += part.layout.size();
    }
}

const std::byte* Memory::end() const {
    std::vector<ucp_dt_iov_t> last;
    if (size_ > 0) {
        pieces(size_ - 1, 1, last);
    }
    return last.empty() ? nullptr : static_cast<const std::byte*>(last[0].buffer) + 1;
}

std::uint64_t Memory::shortest_run() const {
    std::uint64_t shortest = size_;
    const auto look = [&](const protocol::Layout& layout) {
        shortest = layout.size() > 0 ? std::min(shortest, layout.run()) : shortest;
    };
    look(first_.layout);
    for (const Part& part : others_) {
        look(part.layout);
    }
    return shortest;
}

std::uint64_t Memory::segment_bytes() const {
    if (others_.empty()) {
        return protocol::segment_bytes(first_.layout);
    }
    std::uint64_t count = 0;
    std::uint64_t smallest = size_;
    const auto add = [&](const protocol::Layout& layout) {
        if (layout.size() > 0) {
            count += layout.run_count();
            smallest = std::min(smallest, layout.run());
        }
    };
    add(first_.layout);
    for (const Part& part : others_) {
        add(part.layout);
    }
    return protocol::segment_bytes(count, smallest);
}

void Memory::pieces(std::uint64_t begin, std::uint64_t length,
                    std::vector<ucp_dt_iov_t>& out) const {
    const auto take = [&](const Part& part) {
        const std::uint64_t size = part.layout.size();
        if (begin >= size) {
            begin -= size;
            return;
        }
        const std::uint64_t here = std::min(length, size - begin);
        part.layout.pieces(part.base, begin, here, out);
        begin = 0;
        length -= here;
    };
    take(first_);
    for (const Part& part : others_) {
        if (length == 0) {
            return;
        }
        take(part);
    }
}

}  // namespace ucxstore::client

#include "ucx_server/unread_bytes.hpp"

#include <algorithm>

namespace ucxstore::ucx_server {

void UnreadBytes::read(std::uint64_t offset, std::span<std::byte> target) {
    if (offset < begin_) {
        piece_ = 0;
        begin_ = 0;
    }
    wanted_.clear();
    for (std::uint64_t left = target.size(); left > 0;) {
        const ucp_dt_iov_t& piece = pieces_[piece_];
        if (offset >= begin_ + piece.length) {
            begin_ += piece.length;
            ++piece_;
            continue;
        }
        const std::uint64_t skipped = offset - begin_;
        const std::uint64_t length = std::min<std::uint64_t>(left, piece.length - skipped);
        wanted_.push_back({static_cast<std::byte*>(piece.buffer) + skipped, length});
        offset += length;
        left -= length;
    }
    region_->read(wanted_, target.data());
}

}  // namespace ucxstore::ucx_server

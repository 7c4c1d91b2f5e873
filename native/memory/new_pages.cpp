#include "memory/new_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "memory/huge_pages.hpp"

namespace ucxstore::memory {

void NewPages::clear(std::span<const ucp_dt_iov_t> pieces) {
    if (end_ == 0) {
        return;
    }
    for (const ucp_dt_iov_t& piece : pieces) {
        const auto begin = reinterpret_cast<std::uintptr_t>(piece.buffer);
        const std::uintptr_t end = begin + piece.length;
        if (begin >= done_begin_ && end <= done_end_) {
            continue;
        }
        for (std::uintptr_t block = begin / kHugePageBytes * kHugePageBytes; block < end;
             block += kHugePageBytes) {
            if (block >= done_begin_ && block < done_end_) {
                continue;
            }
            clear_block(block, begin);
            if (block != done_end_) {
                done_begin_ = block;
            }
            done_end_ = block + kHugePageBytes;
        }
    }
}

// `piece` begins before the end of the block.
void NewPages::clear_block(std::uintptr_t block, std::uintptr_t piece) const {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t end = std::min(end_, block + kHugePageBytes);
    if (end > piece) {
        madvise(reinterpret_cast<void*>((end - 1) / page * page), page, kPopulateWrite);
    }
}

}  // namespace ucxstore::memory

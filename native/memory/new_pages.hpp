// New memory of a process, which the kernel clears page by page as it is first written to.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucxstore::memory {

// Has huge pages that are about to be written cleared from their beginning on. The kernel clears
// one towards the address that is written first, so that this is still in the caches. Upwards that
// takes half as long as downwards (7 ms for 100 MB on an EPYC). So their ends come first.
class NewPages {
  public:
    NewPages() = default;
    // Of memory that ends there.
    explicit NewPages(const std::byte* end) : end_(reinterpret_cast<std::uintptr_t>(end)) {}

    // Before these pieces are written, which are in ascending order for the most part. No byte
    // changes, also of those between them. Nothing happens where the kernel cannot do it.
    void clear(std::span<const ucp_dt_iov_t> pieces);

  private:
    void clear_block(std::uintptr_t block, std::uintptr_t piece) const;

    std::uintptr_t end_ = 0;
    std::uintptr_t done_begin_ = 0;  // these are done
    std::uintptr_t done_end_ = 0;
};

}  // namespace ucxstore::memory

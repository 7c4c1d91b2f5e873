// The bytes of a message that are read as it is sent.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "memory/region.hpp"

namespace ucxstore::ucx_server {

class UnreadBytes {
  public:
    // `pieces` of a region that is unread().
    UnreadBytes(std::shared_ptr<const memory::Region> region, std::vector<ucp_dt_iov_t> pieces)
        : region_(std::move(region)), pieces_(std::move(pieces)) {}

    // Reads bytes of the message that begin at `offset`; in order, mostly. Throws Error(storage),
    // std::bad_alloc.
    void read(std::uint64_t offset, std::span<std::byte> target);

  private:
    const std::shared_ptr<const memory::Region> region_;
    const std::vector<ucp_dt_iov_t> pieces_;
    std::vector<ucp_dt_iov_t> wanted_;  // of these
    std::size_t piece_ = 0;             // the last one that was looked at
    std::uint64_t begin_ = 0;           // where it begins in the message
};

}  // namespace ucxstore::ucx_server

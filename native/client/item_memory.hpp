// The memory of an item: where a reply goes, or a value comes from. Pure arithmetic, no I/O.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/layout.hpp"

namespace ucxstore::client {

// A layout from a base address; or several such parts, joined.
class Memory {
  public:
    struct Part {
        std::byte* base = nullptr;
        protocol::Layout layout;
    };

    Memory(std::byte* base, protocol::Layout layout);
    explicit Memory(std::vector<Part> parts);

    std::uint64_t size() const { return size_; }
    // Behind its last byte, in its own order; nullptr where it has none.
    const std::byte* end() const;
    // The bytes that lie together everywhere; 0 where it has none.
    std::uint64_t shortest_run() const;
    // The segments in which it is best moved: see protocol::segment_bytes().
    std::uint64_t segment_bytes() const;
    // Appends the pieces that hold bytes [begin, begin + length) of it.
    void pieces(std::uint64_t begin, std::uint64_t length, std::vector<ucp_dt_iov_t>& out) const;

  private:
    Part first_;
    std::vector<Part> others_;  // apart, as mostly there are none
    std::uint64_t size_ = 0;
};

}  // namespace ucxstore::client

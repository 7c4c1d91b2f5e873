// Blocks of a large object: which of them a get wants, and a region made of them. No I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/region.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::cache {

// What is known of an object without its bytes.
struct ObjectInfo {
    std::uint64_t size = 0;
    std::string etag;
    std::uint64_t version = 0;
};

// Blocks next to one another.
struct Run {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
};

inline std::uint64_t block_count(std::uint64_t size, std::uint64_t block) {
    return (size + block - 1) / block;
}

// The blocks of a value that hold bytes of what is wanted, in order, as runs; none where what is
// wanted is not in the value.
std::vector<Run> blocks_of(const protocol::Selection& wanted, std::uint64_t size,
                           std::uint64_t block);

// A value in several pieces of memory, of which some may be missing.
class PiecedRegion : public memory::Region {
  public:
    struct Part {
        std::uint64_t begin;
        std::shared_ptr<const memory::Region> bytes;
    };

    PiecedRegion(const ObjectInfo& info, std::vector<Part> parts);

    // No memory: only what offsets count from.
    std::byte* data() const override;
    std::uint64_t size() const override { return size_; }
    bool pieced() const override { return true; }
    // Throws Error(storage) where bytes are missing.
    std::shared_ptr<const memory::Region> locate(std::vector<ucp_dt_iov_t>& pieces) const override;

  private:
    const Part& at(std::uint64_t offset) const;

    const std::uint64_t size_;
    std::vector<Part> parts_;  // in order
};

}  // namespace ucxstore::cache

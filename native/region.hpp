// Memory with a value in it. Whoever holds the shared_ptr has it pinned: a value is never changed
// in place, a new one for the same key is a new region, and the old one dies with its last reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ucxstore {

class Region {
  public:
    virtual ~Region() = default;
    virtual std::byte* data() const = 0;
    virtual std::uint64_t size() const = 0;
};

// Ordinary memory, not initialised. Large regions are of huge pages where the kernel has them, and
// recycled (recycler.hpp). Throws Error(backing) where there is not enough.
std::shared_ptr<Region> allocate_region(std::uint64_t size);

}  // namespace ucxstore

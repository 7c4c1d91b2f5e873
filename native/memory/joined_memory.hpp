// Memory in several places, seen as if it lay together.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "memory/region.hpp"

namespace ucxstore::memory {

// Maps parts one after the other, once more. All must be whole pages of shared mappings to read,
// whose pages stay as they are for as long as the region is there. nullptr where that cannot be:
// nothing is ever copied.
std::shared_ptr<Region> join(std::span<const std::span<const std::byte>> parts);

}  // namespace ucxstore::memory

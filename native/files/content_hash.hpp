// A hash of bytes, to tell one content from another. It is no protection against whoever wants two
// contents to have one hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucxstore::files {

// XXH64 with the seed 0: the same everywhere, and about as fast as memory is read.
std::uint64_t content_hash(std::span<const std::byte> bytes);

}  // namespace ucxstore::files

// Versions: numbers that tell the values of a key apart. See Region::version().
#pragma once

#include <cstdint>
#include <string_view>

#include "memory/region.hpp"

namespace ucxstore::storage {

// A new version each time. The first one is random, so that a restarted server does not repeat the
// versions of the one before.
std::uint64_t next_version();

// The same version for the same entity tag and size, at every server. Without a tag, a new one each
// time.
std::uint64_t version_of(std::string_view etag, std::uint64_t size);

// The version of a whole value: of its entity tag, or, where the source gives none, of its bytes.
// So it stays the same for as long as the value does, also if it is fetched again.
std::uint64_t version_of(std::string_view etag, const memory::Region& value);

}  // namespace ucxstore::storage

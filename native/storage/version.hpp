// Numbers that tell the values of a key apart: see Region::version().
#pragma once

#include <cstdint>
#include <string_view>

namespace ucxstore {

// Another one each time. It starts anywhere, so that a server that took another one's place is not
// taken for it.
std::uint64_t next_version();

// The same one for the same entity tag and size, at whichever server; another one each time where
// there is no tag.
std::uint64_t version_of(std::string_view etag, std::uint64_t size);

}  // namespace ucxstore

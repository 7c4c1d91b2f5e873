// Which part of a value is mapped into a result, while the rest is copied. Pure arithmetic, no I/O.
#pragma once

#include <cstdint>

namespace ucxstore::local_client {

// Bytes [begin, begin + length) of what is wanted of a value.
struct ValuePart {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
};

// Where what is wanted of a value lies, and where it goes.
struct Wanting {
    std::uint64_t source;  // from the beginning of the arena
    std::uint64_t target;  // from the beginning of the result, which begins on a page
    std::uint64_t size;
    std::uint64_t room;  // behind it in the result, so many bytes belong to nobody
};

// Returns the whole pages of it, from the first to the last; none if they lie at other distances
// from the beginning of a page here and there. The last one may reach into the room.
ValuePart whole_pages(const Wanting& wanting, std::uint64_t page);

}  // namespace ucxstore::local_client

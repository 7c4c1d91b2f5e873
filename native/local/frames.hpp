// The messages that only a server and a client of the same host exchange, on a Unix socket: they
// pass descriptors of shared memory. Little-endian, fixed in width. stream/frames.hpp has the
// others.
#pragma once

#include <cstdint>

#include "protocol/wire.hpp"

namespace ucxstore::local {

struct LocalValueHeader {
    protocol::ValueHeader value;
    std::uint64_t place;  // where the segment begins in the upload, or kInBody
    // the key follows, to the end of the header
};
constexpr std::uint64_t kInBody = ~0ull;

// The shelves that a client is shown have numbers: kMainShelf has the server's values, others have
// those of a scratch space each.
struct ShelfHeader {
    std::uint64_t shelf;
};
constexpr std::uint64_t kMainShelf = 0;
// So many scratch spaces a client is shown at a time: each takes descriptors and mappings.
constexpr std::size_t kMaxSpaces = 16;

struct ArenaHeader {
    std::uint64_t number;
    std::uint64_t shelf;
    std::uint64_t bytes;
};

struct RoomHeader {
    std::uint64_t place;
    std::uint64_t length;
};

// The server keeps values of at least so many bytes in files that clients have made for them
// (shared/sealed.hpp); kNoFiles where it keeps none.
struct FilesHeader {
    std::uint64_t least_bytes;
};
constexpr std::uint64_t kNoFiles = ~0ull;

static_assert(sizeof(LocalValueHeader) == 72 && sizeof(RoomHeader) == 16);

// Segments up to this size come in the body: to copy them twice costs less than to find room.
constexpr std::uint64_t kInlineBytes = 16 * 1024;
// The segments of larger values: few enough bytes that both sides copy at the same time.
constexpr std::uint64_t kUploadSegmentBytes = 2ull << 20;
// What a client has in its upload, at the most: enough that both sides copy at the same time; more
// would only be in fewer caches.
constexpr std::uint64_t kMaxUploadBytes = 16ull << 20;

}  // namespace ucxstore::local

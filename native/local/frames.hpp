// The messages between a server and a client of the same host, on a Unix socket: those of the wire
// protocol, and some that pass descriptors of shared memory. Little-endian, fixed in width.
#pragma once

#include <cstdint>

#include "protocol/wire.hpp"

namespace ucxstore::local {

enum class FrameKind : std::uint32_t {
    request = 1,  // protocol::RequestHeader; the body is as over UCX
    value = 2,  // LocalValueHeader, the key; the body is the segment, unless that is in the upload
    reply = 3,  // protocol::ReplyHeader; the body is the segment
    pins = 4,   // server: ShelfHeader, a space's name; whether it lives, a table for this client's
                // pins, a lifeline, what may be held: 4 descriptors
    index = 5,  // server: ShelfHeader, of the index that replaces an older one; 1 descriptor
    arena = 6,  // server: ArenaHeader; 1 descriptor
    dropped = 9,  // server: ArenaHeader, of an arena that should be unmapped
    root = 14,    // server: whether it lives, the session's page, its directory; 3 descriptors
    upload = 7,   // client: memory that its values come in; 1 descriptor
    room = 8,     // server: RoomHeader, a piece of the upload that may be used again
    file = 10,   // client: protocol::ValueHeader, the key; a sealed file of the value; 1 descriptor
    files = 11,  // server: FilesHeader
    ended = 16,  // server: ShelfHeader, of a scratch space's that should be forgotten
    held = 20,   // client: what it holds has changed by much
};

// Before each message: its header and its body follow. Its descriptors come with its first byte.
struct Frame {
    FrameKind kind;
    std::uint32_t descriptors;
    std::uint32_t header_bytes;
    std::uint32_t reserved;
    std::uint64_t body_bytes;
};

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

static_assert(sizeof(Frame) == 24 && sizeof(LocalValueHeader) == 72 && sizeof(RoomHeader) == 16);

// Segments up to this size come in the body: to copy them twice costs less than to find room.
constexpr std::uint64_t kInlineBytes = 16 * 1024;
// The segments of larger values: few enough bytes that both sides copy at the same time.
constexpr std::uint64_t kUploadSegmentBytes = 2ull << 20;
// What a client has in its upload, at the most: enough that both sides copy at the same time; more
// would only be in fewer caches.
constexpr std::uint64_t kMaxUploadBytes = 16ull << 20;

constexpr std::size_t kMaxHeaderBytes = 2048;
constexpr std::uint64_t kMaxBodyBytes = protocol::kSegmentBytes;

}  // namespace ucxstore::local

// Messages on a stream of bytes: a frame, a header, a body. The wire protocol has some, over TCP or
// a Unix socket; the local plane has more (local/frames.hpp). Little-endian, fixed in width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/wire.hpp"

namespace ucxstore::stream {

enum class FrameKind : std::uint32_t {
    request = 1,  // protocol::RequestHeader; the body is as over UCX
    value = 2,    // protocol::ValueHeader, the key; the body is the segment. Of the local plane:
                  // LocalValueHeader, the key; the segment may be in the upload
    reply = 3,    // protocol::ReplyHeader; the body is the segment
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

static_assert(sizeof(Frame) == 24);

// The segments of values that clients send over TCP: few enough bytes that they are in a cache when
// they are sent, once they were summed up, and that the rest of one is copied soon if its memory is
// wanted back.
constexpr std::uint64_t kStreamSegmentBytes = 1ull << 19;

constexpr std::size_t kMaxHeaderBytes = 2048;
constexpr std::uint64_t kMaxBodyBytes = protocol::kSegmentBytes;

}  // namespace ucxstore::stream

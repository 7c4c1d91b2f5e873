// The wire protocol, for both sides: layout, encoding and decoding of messages; no I/O. Everything
// is little-endian and fixed in width. What comes from a peer is checked before anybody acts on it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "protocol/layout.hpp"

namespace ucxstore::protocol {

constexpr int kProtocolVersion = 7;

// The body of one request message. Small enough to travel eagerly in one fragment of any
// transport (shared memory: 8 KiB); a batch of more is sent as several messages.
constexpr std::size_t kRequestBodyBytes = 6 * 1024;

// The largest request that a server takes: one with the longest key and many ranges.
constexpr std::size_t kMaxRequestBytes = 256 * 1024;

// The most bytes of an error's text, and of the names in a page of a listing.
constexpr std::size_t kMaxErrorBytes = 1024;
constexpr std::size_t kPageBytes = 256 * 1024;

// A value travels in segments of this size: progress can be seen in between (it renews a request's
// deadline), descriptors of scattered memory stay few, and InfiniBand's limit of 1 GiB a message is
// far away. Smaller ones were no faster.
constexpr std::uint64_t kSegmentBytes = 16ull << 20;

// What is at most so long travels in its message. Above it, the receiver's memory is filled without
// staging; below, one message is cheaper than to agree on that. It must stay under one fragment of
// every transport of UCX's, which would assemble several in memory of its own.
constexpr std::uint64_t kEagerBytes = 4096;

// How many values a client may have sent, at least the beginning of them, without an answer. The
// rest waits at the client: so a server that is slower than its clients holds little of theirs.
constexpr std::uint64_t kMaxUnanswered = 512;

// Pieces of memory in one segment: 1 MiB of descriptors, however finely a box is cut. Where a
// segment would have more, it is made smaller, by halves, down to kMinSegmentBytes.
constexpr std::uint64_t kSegmentPieces = 64 * 1024;
constexpr std::uint64_t kMinSegmentBytes = 4096;
std::uint64_t segment_bytes(std::uint64_t pieces, std::uint64_t smallest);
inline std::uint64_t segment_bytes(const Layout& layout) {
    return segment_bytes(layout.run_count(), layout.run());
}

// The most boxes of one selection. Their offsets and a key fit well into the largest request.
constexpr std::size_t kMaxOffsets = 16 * 1024;

// The most segments of a value that a peer may announce.
constexpr std::uint64_t kMaxSegments = 1ull << 22;

// The segments of a value that have come. All but the last have one length, so that each can be
// counted once. They come in any order, as UCX keeps none among active messages. What this takes
// grows with what has come, and not with what was announced.
class Segments {
  public:
    // The first segment sets `total` and `segment`; later ones must agree. False where one does not
    // fit, or has come before.
    bool add(std::uint64_t total, std::uint64_t segment, std::uint64_t offset,
             std::uint64_t length);
    bool begun() const { return segment_ > 0; }
    std::uint64_t total() const { return total_; }
    // Those that have come before others in front of them: each is in a list.
    std::uint64_t beyond() const { return beyond_.size(); }

  private:
    bool is_new(std::uint64_t index);

    std::uint64_t total_ = 0;
    std::uint64_t segment_ = 0;
    std::uint64_t count_ = 0;                   // of all segments
    std::uint64_t in_order_ = 0;                // all before this one have come,
    std::unordered_set<std::uint64_t> beyond_;  // and these behind it
};

// The largest value that a peer may announce: larger than any memory or disk.
constexpr std::uint64_t kMaxValueBytes = 1ull << 46;

enum class Message : unsigned { request = 1, value = 2, reply = 3 };

enum class Op : std::uint32_t {
    ping,
    get,
    stat,
    remove,
    remove_prefix,
    measure,
    list,
    abandon,  // the client has given the request of this number up; there is no reply
    stats,
    begin_space,  // a scratch space, by its owner
    renew_space,
    end_space,
    operate,   // what an operator asks of the server
    was_read,  // whole values of a scratch space that frees what has been read once
};

enum class Status : std::uint32_t {
    ok,
    missing,  // no such key
    kept,     // set if absent: the key has a value, which stays
    invalid_key,
    read_only,
    too_large,   // the reply does not fit the limit that the request gave
    wrong_size,  // the value is not of the size that the request expects
    bad_range,   // the box reaches outside the value
    storage,     // the storage failed; text says how
    busy,        // more at once than the server takes
    changed,     // the value has another version than the request wants
    ended,       // the scratch space of the key has ended
    shown,       // the value is to be seen in memory that the client has mapped
    unmoved,     // a value's file is not taken: its bytes are to be sent
    denied,      // the client's grant does not allow it
    going_on,    // no answer yet: the request moves, or waits its turn, and those before it move
    leaving,     // no reply: the server ends, and is to be asked for nothing more
    unknown,     // a change may have been carried out, or not, or may still be; text says why
    altered,     // the message was changed on its way, and nothing was done
    evicted,     // the key had a value, which the server has given up as its memory was full
    undecoded,   // the value is not decoded here: text says why, and the client is to do it
};

using Token = std::array<std::uint8_t, 16>;

struct RequestHeader {
    Token token;
    std::uint64_t request;
    Op op;
    std::uint32_t first;  // position in the batch of the message's first item
    std::uint32_t count;  // items in this message
    std::uint32_t flags;
};

// A flag of gets: the bytes are wanted, even where the client could see them.
constexpr std::uint32_t kSendBytes = 1;
// Another one: their keys are names of decoded values, and the text of a recipe comes before them.
constexpr std::uint32_t kDecoded = 4;
// The longest such text, which leaves room for a key in a request of kRequestBodyBytes.
constexpr std::size_t kMaxRecipeBytes = 4096;
// A flag of requests: all messages of the session have checksums (sums.hpp).
constexpr std::uint32_t kChecked = 2;

struct ValueHeader {
    Token token;
    std::uint64_t request;
    std::uint32_t item;
    std::uint32_t if_absent;
    std::uint64_t total;
    std::uint64_t segment;  // the length of every segment but the last, which may be shorter
    std::uint64_t offset;
    std::uint64_t length;
    // the key follows, to the end of the header
};

struct ReplyHeader {
    Token token;
    std::uint64_t request;
    std::uint32_t item;
    Status status;
    std::uint64_t value_size;  // of the whole value under the key
    std::uint64_t version;     // of that value; never 0, but 0 where the reply is about none
    std::uint64_t reply_size;  // of all segments of this reply
    std::uint64_t segment;     // the length of every segment but the last, which may be shorter
    std::uint64_t offset;      // of this segment in the reply
    std::uint64_t length;      // of this segment
};

static_assert(sizeof(RequestHeader) == 40 && sizeof(ValueHeader) == 64 &&
              sizeof(ReplyHeader) == 80);

// A byte range as Zarr has them.
struct Range {
    enum class Kind : std::uint8_t { range = 1, offset = 2, suffix = 3 };
    Kind kind;
    std::uint64_t a;
    std::uint64_t b;  // range: end; else unused
};

// What a get wants of a value: all of it (no ranges), byte ranges, or a box, or several like it.
using Selection = std::variant<std::vector<Range>, Layout>;

constexpr std::uint64_t kAnySize = ~0ull;
constexpr std::uint64_t kAnyVersion = 0;

struct GetItem {
    std::string key;
    Selection selection;
    std::uint64_t limit = kAnySize;         // the largest reply that the client can take
    std::uint64_t segment = kSegmentBytes;  // the largest segment of it, at least kMinSegmentBytes
    std::uint64_t expected = kAnySize;      // the size that the whole value must have
    std::uint64_t version = kAnyVersion;    // the version that the value must have
};

struct ListQuery {
    std::string prefix;
    bool delimited = false;
    std::string cursor;
};

// Why no request takes such boxes at these offsets (one at least); nullptr if they are fine. Then
// nothing overflows where their bytes are counted.
const char* box_fault(std::span<const std::int64_t> offsets, std::uint64_t run,
                      std::span<const Dim> dims);

// The bytes that a range selects in a value of `size` bytes.
struct Span {
    std::uint64_t begin;
    std::uint64_t length;
};
Span resolve(const Range& range, std::uint64_t size);

// Encoders append to `out`.
void put_get_item(std::string& out, const GetItem& item);
void put_string(std::string& out, std::string_view text);
void put_u64(std::string& out, std::uint64_t number);
void put_u8(std::string& out, std::uint8_t number);

// Reads a body. Every method throws Error(protocol) where the body is too short.
class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::uint8_t u8();
    std::uint16_t u16();
    std::uint32_t u32();
    std::uint64_t u64();
    std::string string();
    GetItem get_item();
    ListQuery list_query();
    bool done() const { return bytes_.empty(); }

  private:
    std::vector<Range> ranges();
    Layout box(std::vector<std::int64_t> offsets);
    std::vector<std::int64_t> offsets();
    std::span<const std::byte> take(std::size_t size);
    std::span<const std::byte> bytes_;
};

// Copies a fixed header out of a message; nullopt where it is too short.
template <typename Header>
std::optional<Header> read_header(const void* data, std::size_t size) {
    if (size < sizeof(Header)) {
        return std::nullopt;
    }
    Header header;
    __builtin_memcpy(&header, data, sizeof(Header));
    return header;
}

}  // namespace ucxstore::protocol

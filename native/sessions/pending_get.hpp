// A get that waits or is being sent: a key until its turn comes, then a pinned value in segments.
// No I/O.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/region.hpp"
#include "protocol/selecting.hpp"
#include "protocol/wire.hpp"
#include "sessions/account.hpp"
#include "sessions/client_record.hpp"

namespace ucxstore::sessions {

// The item of a request that a reply is to.
struct ItemId {
    std::uint64_t request;
    std::uint32_t item;

    bool operator==(const ItemId&) const = default;
};

struct HashItemId {
    std::size_t operator()(const ItemId& id) const {
        return std::hash<std::uint64_t>()(id.request * 0x9E3779B97F4A7C15ull + id.item);
    }
};

// What is known of a value that is read as it is sent.
struct Reading {
    std::uint64_t messages = 0;  // in flight
    std::exception_ptr failure;
};

// A message of a value.
struct Segment {
    protocol::ReplyHeader header{};    // but for the token
    std::vector<ucp_dt_iov_t> pieces;  // of the value, or of `owner`; or
    std::string packed;                // a copy, where that is cheaper
    std::shared_ptr<const memory::Region> owner;
    std::shared_ptr<Reading> reading;  // set where the pieces are to be read as they are sent
};

class PendingGet {
  public:
    // Of bytes that are read as they are sent, at the most: they go in one message, which is
    // eager. More than any number of segments.
    static constexpr std::uint64_t kHeldBack = protocol::kEagerBytes;

    // `begun`: when its request came.
    PendingGet(const ItemId& id, protocol::GetItem wanted, bool send_bytes = false,
               base::TimePoint begun = {})
        : id_(id), wanted_(std::move(wanted)), send_bytes_(send_bytes), begun_(begun) {}

    // It wants a decoded value, by this recipe: its key is a name in protocol::kDecodedFolder.
    void decode_by(std::shared_ptr<const std::string> recipe) { recipe_ = std::move(recipe); }
    // Whether what is stored is still to be decoded for it.
    bool is_to_decode() const { return recipe_ != nullptr && !decoded_; }
    const std::shared_ptr<const std::string>& recipe() const { return recipe_; }
    // From now on it waits for the decoded value, or not any more.
    void note_decoded(bool decoded) { decoded_ = decoded; }
    // The key of the stored value, and the part of it that is needed for this.
    std::string stored_key() const;
    protocol::Selection stored_selection() const;
    // The version that it must have; protocol::kAnyVersion for any.
    std::uint64_t version() const { return wanted_.version; }

    const ItemId& id() const { return id_; }
    const std::string& key() const { return wanted_.key; }
    const protocol::Selection& selection() const { return wanted_.selection; }
    Timed timed() const { return {.kind = base::RequestKind::get, .line = line_, .begun = begun_}; }
    // Its line in the log of requests.
    void set_line(std::uint32_t line) { line_ = line; }
    // The memory that it takes as long as it is there, but for its value.
    std::uint64_t held_bytes() const;
    // Charges itself and that.
    void charge(Account& account);
    // Charges what it keeps of a value that a source has brought.
    void charge_value(Account& account);
    // Whether a source has brought the value before, for which there was no room.
    bool was_fetched() const { return fetched_; }
    void note_fetched() { fetched_ = true; }
    bool is_charged() const { return value_bytes_.amount() > 0; }
    // Whether the bytes are wanted, even where the client could see them.
    bool send_bytes() const { return send_bytes_; }

    // Pins the value (nullptr: the key has none) and finds what is wanted of it. To be called once.
    // nullopt where that can be sent.
    std::optional<protocol::Refusal> open(std::shared_ptr<const memory::Region> value);

    // What follows is for an open get.
    const std::shared_ptr<const memory::Region>& value() const { return value_; }
    // The bytes of it that are wanted.
    std::uint64_t size() const { return selected_.size; }
    // Has its bytes read as they are sent, where they are many and not in memory, and no thread is
    // needed that may wait for them. The last of them
    // are held back until the rest is read, as the client cannot be told of a failure afterwards.
    void read_as_sent();
    // nullptr where that is not done.
    const std::shared_ptr<Reading>& reading() const { return reading_; }
    // Whether what comes next must wait for what is in flight: the bytes held back, or a failure.
    bool waits() const {
        return reading_ != nullptr && reading_->messages > 0 &&
               (reading_->failure || selected_.size - sent_ <= kHeldBack);
    }
    // How many bytes next() may have to read into memory.
    std::uint64_t next_is_read() const;
    // Whether another thread must read what comes next, as that waits for a disk.
    bool must_load() const { return value_->waits() && !loaded_; }
    // What it is to read: pieces for the value's locate().
    std::vector<ucp_dt_iov_t> next_pieces() const;
    // What that has given, and what it counts for until next().
    struct Loaded {
        std::vector<ucp_dt_iov_t> pieces;
        std::shared_ptr<const memory::Region> owner;
        Hold held;
    };
    void note_loaded(Loaded loaded) { loaded_ = std::move(loaded); }
    // The next segment; one of pieces that are shorter than `least_piece`, on average, is a copy.
    // Throws Error(storage) where bytes are missing or cannot be read.
    Segment next(std::uint64_t least_piece = 0);
    // Whether next() has been called for all of it. There is one segment at least, if an empty one.
    bool done() const { return sent_ >= selected_.size; }

  private:
    std::uint64_t longest_segment() const;
    // Where a segment of several byte ranges begins: in which of them, and where that begins in
    // what is sent.
    struct SpanPlace {
        std::size_t span = 0;
        std::uint64_t begin = 0;
    };
    // The pieces of the next segment; returns where the one after it begins.
    SpanPlace next_spans(std::uint64_t length, std::vector<ucp_dt_iov_t>& pieces) const;

    ItemId id_;
    protocol::GetItem wanted_;
    bool send_bytes_;
    std::uint32_t line_ = 0;
    base::TimePoint begun_;
    Hold counted_;
    Hold charged_;
    Hold value_bytes_;
    bool fetched_ = false;
    std::shared_ptr<const std::string> recipe_;  // nullptr for a value as it is stored
    bool decoded_ = false;
    std::shared_ptr<const memory::Region> value_;
    protocol::Selected selected_;
    std::uint64_t step_ = 0;  // the length of all segments but the last
    std::uint64_t sent_ = 0;
    SpanPlace span_;
    std::optional<Loaded> loaded_;  // what comes next
    std::shared_ptr<Reading> reading_;
};

}  // namespace ucxstore::sessions

// A value on its way in, in segments: refused, or received into memory that its storage has given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cached_source.hpp"
#include "protocol/sums.hpp"
#include "protocol/wire.hpp"
#include "sessions/account.hpp"
#include "sessions/receiver.hpp"
#include "storage/storage.hpp"

namespace ucxstore::sessions {

// What a value on its way takes besides its key and its bytes, about.
inline constexpr std::uint64_t kValueBytes = 512;

// It has memory of one storage, or for the source, or none: then its segments are counted and
// dropped. A transfer into the memory holds a pointer to this.
class ArrivingValue : public std::enable_shared_from_this<ArrivingValue> {
  public:
    // The bytes of a segment: in `data`, or in a parcel where that is not nullptr.
    struct Bytes {
        std::span<const std::byte> data;
        Receiver::Parcel parcel;
        protocol::Sum sum;
    };
    // A segment that waits until there is room for its value.
    struct Held {
        protocol::ValueHeader header;
        Receiver::Parcel parcel;
        std::string data;  // without a parcel
        protocol::Sum sum;
        Hold charge;
    };

    ArrivingValue(std::string key, bool if_absent) : key_(std::move(key)), if_absent_(if_absent) {}
    ArrivingValue(const ArrivingValue&) = delete;
    ArrivingValue& operator=(const ArrivingValue&) = delete;
    ~ArrivingValue() { drop_held(); }

    const std::string& key() const { return key_; }
    bool if_absent() const { return if_absent_; }

    // Keeps its place among the values that arrive, and what it takes besides its bytes.
    void keep(Hold place, Hold bytes) {
        place_ = std::move(place);
        held_bytes_ = std::move(bytes);
    }
    // Notes that a segment has come. False where it does not fit those before.
    bool add(const protocol::ValueHeader& header);
    // Charges the list of those that have come out of order. False where there is no room for it.
    bool charge_list(Account& account);
    bool begun() const { return segments_.begun(); }
    std::uint64_t total() const { return segments_.total(); }
    // Counts bytes that were received or dropped. True once that is all of them.
    bool count(std::uint64_t bytes);
    // Bytes that are still to be counted.
    std::uint64_t left() const { return total() - counted_; }

    // Take memory for the whole value. Throw Error, or std::bad_alloc.
    void receive_into(std::shared_ptr<storage::Storage> storage);
    void receive_into(cache::CachedSource& source);
    // To be called before a segment of so many bytes is received. Throws Error(storage) where there
    // is no memory left for it.
    void expect(std::uint64_t bytes) {
        if (incoming_ != nullptr) {
            incoming_->expect(bytes);
        }
    }
    // Drops what is still to come, and gives memory and room back, as soon as no transfer into the
    // memory is under way.
    void refuse() {
        refused_ = true;
        drop_refused();
    }
    void begin_transfer() { ++transfers_; }
    void end_transfer() {
        --transfers_;
        drop_refused();
    }
    // Whether its bytes are kept. If not, they are dropped.
    bool is_kept() const { return is_for_storage() || is_for_source(); }
    // Where a segment goes; nullptr where that is no memory, and its bytes go through write().
    std::byte* memory_at(std::uint64_t offset, std::uint64_t length);
    void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept;
    // The CRC32C of a segment that has come, and that has memory.
    std::uint32_t checksum(std::uint64_t offset, std::uint64_t length);

    // Until there is room for it, its segments are held; their parcels are `receiver`'s.
    void wait_for_room(Receiver& receiver) { waits_ = &receiver; }
    bool waits_for_room() const { return waits_ != nullptr; }
    // False where the account has no room for that.
    bool hold(const protocol::ValueHeader& header, const Bytes& bytes, Account& account);
    std::vector<Held>& held() { return held_; }
    // Drops the parcels that are left.
    void stop_waiting();
    // Keeps the room until take_room(), or its end.
    void give_room(storage::WriteBudget::Room room, storage::WriteBudget& budget) {
        room_ = std::move(room);
        budget_ = &budget;
    }
    bool has_room() const { return room_ != nullptr; }
    // What that is of.
    storage::WriteBudget* budget() const { return budget_; }
    storage::WriteBudget::Room take_room() { return std::move(room_); }

    // Where the whole value goes; neither is true for one that was refused.
    bool is_for_storage() const { return !refused_ && incoming_ != nullptr; }
    bool is_for_source() const { return !refused_ && region_ != nullptr; }
    // Commits it to its storage; false where that keeps the value it has. Throws Error(storage).
    bool commit();
    // Whether that waits. Then this does the same on another thread, unless nobody wants it any
    // more, or `mandate` does not allow it, and calls `done` there, which keeps this alive.
    bool waits() const { return incoming_->waits(); }
    void commit_later(storage::Wanted wanted, storage::Incoming::Done done,
                      base::MandateRef mandate) {
        incoming_->commit_later(if_absent_, std::move(wanted), std::move(done), std::move(mandate));
    }
    std::shared_ptr<memory::Region> take_region() { return std::move(region_); }

  private:
    void drop_held();
    void drop_refused();

    const std::string key_;
    const bool if_absent_;
    Hold place_;
    Hold held_bytes_;
    protocol::Segments segments_;
    Hold list_;  // of those of them that have come out of order
    std::uint64_t counted_ = 0;
    bool refused_ = false;
    std::uint64_t transfers_ = 0;
    std::shared_ptr<storage::Storage> storage_;  // before incoming_, which refers to it
    std::unique_ptr<storage::Incoming> incoming_;
    std::shared_ptr<memory::Region> region_;  // for the source
    storage::WriteBudget::Room room_;
    storage::WriteBudget* budget_ = nullptr;
    Receiver* waits_ = nullptr;
    std::vector<Held> held_;
};

}  // namespace ucxstore::sessions

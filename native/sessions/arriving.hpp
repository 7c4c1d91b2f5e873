// Values that a client writes: received in segments, until their storage has them whole.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "base/handle.hpp"
#include "sessions/arriving_value.hpp"
#include "sessions/awaiting.hpp"
#include "sessions/sending.hpp"
#include "sessions/storages.hpp"

namespace ucxstore::sessions {

// On the session's thread. Each segment that is being received keeps this and its value alive.
class Arriving : public std::enable_shared_from_this<Arriving> {
  public:
    Arriving(Receiver& receiver, Storages storages, bool read_only,
             std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
             std::shared_ptr<Awaiting> awaiting);
    Arriving(const Arriving&) = delete;
    Arriving& operator=(const Arriving&) = delete;

    // Receives a segment. True if it keeps the parcel for later. Throws Error(protocol) where the
    // client breaks the protocol.
    bool receive(const protocol::ValueHeader& header, const std::string& key,
                 const ArrivingValue::Bytes& bytes);
    // Takes a whole value that has come in a file (shared/sealed.hpp), or replies that its bytes
    // are to be sent, and leaves the file as it is. Throws Error(protocol) as above.
    void receive_file(const protocol::ValueHeader& header, const std::string& key, base::Fd&& file);
    // Drops what of this request has come, and what is still to come.
    void abandon(std::uint64_t request);
    // Drops everything. Memory that is still being written to stays until that has ended.
    void close();

    // Whether it waits for the client to send. A value that waits for room does not.
    bool awaits_client() const { return segments_ + values_.size() > waiting_; }
    // Whether the client was gone before something that was on its way had come.
    bool broke_off() const { return broke_off_; }
    // When a segment came last, or room was given to a value.
    base::TimePoint last_came() const { return last_came_; }
    bool awaits_room() const { return waiting_ > 0; }
    // When the session is to end, since the client has room for values, but sends too little of
    // them, and others wait for that room; or when to look again, at the latest.
    base::TimePoint yields_at(base::TimePoint now);
    // Grows while the room moves that a value waits for.
    std::uint64_t room_moved() const { return waits_on_ == nullptr ? 0 : waits_on_->moved(); }
    // Adds the requests whose values wait for room.
    void waiting_requests(std::set<std::uint64_t>& into) const;

  private:
    class Segment;
    using Value = std::shared_ptr<ArrivingValue>;

    Value find_or_begin(const protocol::ValueHeader& header, const std::string& key);
    void accept(const protocol::ValueHeader& header, ArrivingValue& value);
    // Why no value is taken for this key, as a reply; false where one may be.
    bool refuses(const ItemId& id, const std::string& key);
    // Begins to count the latency of a value that has begun to come.
    void time(const protocol::ValueHeader& header, const std::string& key);
    bool was_abandoned(std::uint64_t request) const;
    bool take_room(const protocol::ValueHeader& header, ArrivingValue& value,
                   storage::WriteBudget& budget);
    void take_memory(const protocol::ValueHeader& header, ArrivingValue& value,
                     std::shared_ptr<storage::Storage> storage);
    // Goes on with a value that has waited for room.
    void admit(const ItemId& id, const Value& value, storage::WriteBudget::Room room,
               storage::WriteBudget& budget);
    // Receives what is held of it, or drops that.
    void end_waiting(const Value& value);
    // True if it has taken the parcel over.
    bool fill(const protocol::ValueHeader& header, const Value& value,
              const ArrivingValue::Bytes& bytes);
    void refuse(const ItemId& id, const std::exception& error);
    // Refuses the value of a segment that was changed on its way.
    void altered(const ItemId& id, const Value& value);
    void segment_arrived(const protocol::ValueHeader& header, const Value& value, bool arrived);
    void store(const ItemId& id, const Value& value);
    void count_waiting();
    // Looks at all values for yields_at().
    base::TimePoint weigh(base::TimePoint now);

    Receiver& receiver_;
    const Storages storages_;
    const bool read_only_;
    const std::shared_ptr<ClientRecord> client_;
    const std::shared_ptr<Sending> sending_;
    const std::shared_ptr<Awaiting> awaiting_;
    std::unordered_map<ItemId, Value, HashItemId> values_;
    std::uint64_t waiting_ = 0;   // those of them that wait for room
    std::uint64_t segments_ = 0;  // that are being received
    base::TimePoint last_came_{};
    const storage::WriteBudget* waits_on_ = nullptr;  // what a value has waited for last
    bool broke_off_ = false;
    base::TimePoint yields_at_{};
    base::TimePoint weigh_at_{};
    // Of values with room: what has come since then, and what must.
    base::TimePoint since_{};
    std::uint64_t came_ = 0;
    std::uint64_t must_come_ = 0;
    std::deque<std::uint64_t> abandoned_;  // requests whose values may still come
};

}  // namespace ucxstore::sessions

#include "sessions/arriving.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/status.hpp"
#include "memory/crc32c.hpp"
#include "protocol/keys.hpp"
#include "sessions/answer.hpp"
#include "storage/quota.hpp"

namespace ucxstore::sessions {
namespace {

// Values from this size on have room before they have memory: a large one may need an arena of its
// own, and a client may announce many, and send little of each.
constexpr std::uint64_t kLarge = 1 << 20;

// Values from this size on are written past the caches, as another process will read them.
constexpr std::uint64_t kPastCaches = 256 << 10;

// How many abandoned requests are remembered, as their values may still be on the way.
constexpr std::size_t kRemembered = 256;

// A client that has room for values, for which others wait, and sends less than that of them in so
// long loses its session. Less than the time-outs of the others, which are 30 s by default; and
// half of what each must send for its own requests not to time out.
constexpr auto kYieldTimeout = std::chrono::seconds(15);
constexpr std::uint64_t kYieldBytes = 4ull << 20;

// How often all values are looked at for that. A client may announce very many.
constexpr auto kWeighEvery = std::chrono::milliseconds(100);

ItemId id_of(const protocol::ValueHeader& header) { return {header.request, header.item}; }

}  // namespace

// A segment that is being received: pins the memory of its value.
class Arriving::Segment : public Receiver::Sink {
  public:
    Segment(std::shared_ptr<Arriving> arriving, Value value, const protocol::ValueHeader& header,
            protocol::Sum expected)
        : arriving_(std::move(arriving)),
          value_(std::move(value)),
          header_(header),
          expected_(expected),
          taken_(header.length) {
        ++arriving_->segments_;
        value_->begin_transfer();
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment() override {
        --arriving_->segments_;
        value_->end_transfer();
    }

    std::byte* memory() override { return value_->memory_at(header_.offset, header_.length); }
    void take(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
        if (expected_) {
            taken_.add(offset, bytes);
        }
        value_->write(header_.offset + offset, bytes);
    }
    void done(bool arrived) noexcept override {
        try {
            if (arrived && expected_ && value_->is_kept() && sum() != *expected_) {
                arriving_->altered({header_.request, header_.item}, value_);
            }
            arriving_->segment_arrived(header_, value_, arrived);
        } catch (const std::exception&) {  // for want of memory; none may pass through UCX
            arriving_->client_->doom();
        }
    }

  private:
    std::uint32_t sum() {
        return memory() == nullptr ? taken_.value()
                                   : value_->checksum(header_.offset, header_.length);
    }

    const std::shared_ptr<Arriving> arriving_;
    const Value value_;
    const protocol::ValueHeader header_;
    const protocol::Sum expected_;
    memory::RunningSum taken_;  // of what goes through take()
};

Arriving::Arriving(Receiver& receiver, Storages storages, bool read_only,
                   std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
                   std::shared_ptr<Awaiting> awaiting)
    : receiver_(receiver),
      storages_(std::move(storages)),
      read_only_(read_only),
      client_(std::move(client)),
      sending_(std::move(sending)),
      awaiting_(std::move(awaiting)) {}

bool Arriving::receive(const protocol::ValueHeader& header, const std::string& key,
                       const ArrivingValue::Bytes& bytes) {
    const Value value = find_or_begin(header, key);
    if (value == nullptr) {
        return false;  // its request was abandoned: that message may overtake values
    }
    const bool begun = value->begun();
    last_came_ = base::Clock::now();
    if (value->key() != key || !value->add(header)) {
        values_.erase(id_of(header));
        throw base::Error(base::ErrorKind::protocol, "a segment that does not fit its value");
    }
    if (!value->charge_list(*client_->account())) {
        throw base::Error(base::ErrorKind::protocol,
                          "more segments out of order than a server takes");
    }
    if (!begun) {
        accept(header, *value);
    }
    if (value->waits_for_room()) {
        if (value->hold(header, bytes, *client_->account())) {
            return bytes.parcel != nullptr;
        }
        value->refuse();
        sending_->reply(id_of(header), protocol::Status::busy);
        end_waiting(value);
    }
    fill(header, value, bytes);
    return false;
}

Arriving::Value Arriving::find_or_begin(const protocol::ValueHeader& header,
                                        const std::string& key) {
    if (was_abandoned(header.request)) {
        return nullptr;
    }
    const ItemId id = id_of(header);
    if (const auto found = values_.find(id); found != values_.end()) {
        return found->second;
    }
    // Some are refused: a client that heeds protocol::kMaxUnanswered never gets there.
    if (values_.size() >= 2 * client_->account()->limit(Held::values).of_session) {
        throw base::Error(base::ErrorKind::protocol, "more values at once than a server takes");
    }
    auto value = std::make_shared<ArrivingValue>(key, header.if_absent != 0);
    values_.emplace(id, value);
    time(header, key);
    return value;
}

void Arriving::time(const protocol::ValueHeader& header, const std::string& key) {
    const std::uint32_t line = sending_->log().begin({.request = header.request,
                                                      .kind = base::RequestKind::set,
                                                      .key = key,
                                                      .bytes = header.total});
    sending_->time(id_of(header), base::RequestKind::set, line);
}

bool Arriving::was_abandoned(std::uint64_t request) const {
    return std::ranges::find(abandoned_, request) != abandoned_.end();
}

bool Arriving::refuses(const ItemId& id, const std::string& key) {
    if (auto fault = client_->bounds().write_fault(key)) {
        sending_->reply(id, protocol::Status::denied, std::move(*fault));
        return true;
    }
    if (read_only_ && !protocol::space_of(key)) {
        sending_->reply(id, protocol::Status::read_only);
        return true;
    }
    if (auto fault = protocol::key_fault(key)) {
        sending_->reply(id, protocol::Status::invalid_key, std::move(*fault));
        return true;
    }
    return false;
}

void Arriving::receive_file(const protocol::ValueHeader& header, const std::string& key,
                            base::Fd&& file) {
    const ItemId id = id_of(header);
    if (header.offset != 0 || header.length != header.total ||
        header.total > protocol::kMaxValueBytes || values_.contains(id)) {
        throw base::Error(base::ErrorKind::protocol, "a file that does not fit its value");
    }
    if (was_abandoned(header.request)) {
        return;
    }
    time(header, key);
    if (refuses(id, key)) {
        return;
    }
    try {
        const auto storage = storages_.storage_of(key);
        const auto incoming =
            storage == nullptr ? nullptr : storage->adopt(key, header.total, std::move(file));
        if (incoming == nullptr) {
            return sending_->reply(id, protocol::Status::unmoved);
        }
        const bool written = incoming->commit(header.if_absent != 0);
        client_->count_set(header.total);
        sending_->reply(id, written ? protocol::Status::ok : protocol::Status::kept);
    } catch (const std::exception& error) {
        refuse(id, error);
    }
}

// Takes room and memory for a new value, or replies that it is refused.
void Arriving::accept(const protocol::ValueHeader& header, ArrivingValue& value) {
    const ItemId id = id_of(header);
    if (refuses(id, value.key())) {
        return;
    }
    auto place = client_->account()->hold(Held::values, 1);
    auto bytes = client_->account()->hold(Held::request_bytes, kValueBytes + value.key().size());
    if (!place || !bytes) {
        return sending_->reply(id, protocol::Status::busy);
    }
    value.keep(std::move(*place), std::move(*bytes));
    std::shared_ptr<storage::Storage> storage;
    try {
        storage = storages_.storage_of(value.key());
    } catch (const std::exception& error) {
        return sending_->fail(id, error);
    }
    const auto memory =
        storage == nullptr || header.total < kLarge ? nullptr : storage->memory_limit();
    storage::WriteBudget* const budget = storage == nullptr  ? &storages_.source->writes()
                                         : memory == nullptr ? nullptr
                                                             : &memory->writes();
    if (budget == nullptr || take_room(header, value, *budget)) {
        take_memory(header, value, std::move(storage));
    }
}

// False where the value has to wait for it.
bool Arriving::take_room(const protocol::ValueHeader& header, ArrivingValue& value,
                         storage::WriteBudget& budget) {
    if (header.total <= protocol::kEagerBytes) {  // an eager message: its bytes are here already
        auto room = awaiting_->take_room_now(header.total);
        if (room == nullptr) {
            sending_->reply(id_of(header), protocol::Status::busy);
            return false;
        }
        value.give_room(std::move(room), budget);
        return true;
    }
    // The value itself, and not its id: that may be another one's by then.
    auto room = awaiting_->take_room(
        budget, header.total,
        [weak = weak_from_this(), id = id_of(header), waiting = value.weak_from_this(),
         &budget](storage::WriteBudget::Room given) {
            const auto self = weak.lock();
            const auto one = waiting.lock();
            if (self != nullptr && one != nullptr) {
                self->admit(id, one, std::move(given), budget);
            }
        });
    if (room == nullptr) {
        waits_on_ = &budget;
        value.wait_for_room(receiver_);
        count_waiting();
        return false;
    }
    value.give_room(std::move(room), budget);
    return true;
}

void Arriving::take_memory(const protocol::ValueHeader& header, ArrivingValue& value,
                           std::shared_ptr<storage::Storage> storage) {
    try {
        if (storage == nullptr) {
            value.receive_into(*storages_.source);
        } else {
            value.receive_into(std::move(storage));
        }
    } catch (const std::exception& error) {
        value.refuse();
        refuse(id_of(header), error);
    }
}

void Arriving::admit(const ItemId& id, const Value& value, storage::WriteBudget::Room room,
                     storage::WriteBudget& budget) {
    const auto found = values_.find(id);
    if (found == values_.end() || found->second != value || value->held().empty()) {
        return;  // the client has abandoned it
    }
    last_came_ = base::Clock::now();
    value->give_room(std::move(room), budget);
    try {
        take_memory(value->held().front().header, *value, storages_.storage_of(value->key()));
    } catch (const std::exception& error) {  // its scratch space has ended
        value->refuse();
        refuse(id, error);
    }
    end_waiting(value);
}

void Arriving::end_waiting(const Value& value) {
    for (ArrivingValue::Held& one : value->held()) {
        if (fill(one.header, value, {std::as_bytes(std::span(one.data)), one.parcel, one.sum})) {
            one.parcel = nullptr;
        }
    }
    value->stop_waiting();
    count_waiting();
}

bool Arriving::fill(const protocol::ValueHeader& header, const Value& value,
                    const ArrivingValue::Bytes& bytes) {
    try {
        if (value->is_kept()) {
            value->expect(header.length);
        }
        if (value->is_kept() && bytes.parcel != nullptr) {
            const memory::Write write =
                header.total >= kPastCaches ? memory::Write::past_caches : memory::Write::cached;
            receiver_.receive(
                bytes.parcel,
                std::make_unique<Segment>(shared_from_this(), value, header, bytes.sum),
                header.length, write);
            return true;
        }
        if (value->is_kept() && bytes.sum && memory::crc32c(bytes.data) != *bytes.sum) {
            altered(id_of(header), value);
        }
        if (value->is_kept()) {
            value->write(header.offset, bytes.data);
        }
    } catch (const std::exception& error) {
        value->refuse();
        refuse(id_of(header), error);
    }
    segment_arrived(header, value, true);
    return false;
}

void Arriving::refuse(const ItemId& id, const std::exception& error) { sending_->fail(id, error); }

void Arriving::altered(const ItemId& id, const Value& value) {
    value->refuse();
    if (!client_->closed()) {
        client_->report(base::log::warning, base::log::EventKind::refused,
                        "'" + value->key() + "' was changed on its way");
        sending_->reply(id, protocol::Status::altered);
    }
}

void Arriving::segment_arrived(const protocol::ValueHeader& header, const Value& value,
                               bool arrived) {
    client_->moved();
    last_came_ = base::Clock::now();
    if (client_->closed()) {
        return;
    }
    const ItemId id = id_of(header);
    if (arrived && value->has_room()) {
        came_ += header.length;
        value->budget()->note_moved();
    }
    if (!arrived) {
        broke_off_ = true;
        values_.erase(id);
        return;
    }
    if (value->count(header.length) && values_.erase(id) > 0) {  // else the client has abandoned it
        store(id, value);
    }
}

void Arriving::store(const ItemId& id, const Value& value) {
    if (!value->is_for_source() && !value->is_for_storage()) {
        return;  // it was refused
    }
    if (auto fault = client_->bounds().expiry_fault()) {
        return sending_->reply(id, protocol::Status::denied, std::move(*fault));
    }
    if (value->is_for_source()) {
        awaiting_->put(id, value->key(), value->take_region(), value->if_absent(),
                       value->take_room());
        return;
    }
    if (value->waits()) {
        return awaiting_->commit(id, value);
    }
    try {
        const bool written = value->commit();
        client_->count_set(value->total());
        sending_->reply(id, written ? protocol::Status::ok : protocol::Status::kept);
    } catch (const std::exception& error) {
        sending_->fail(id, error);
    }
}

base::TimePoint Arriving::yields_at(base::TimePoint now) {
    if (values_.empty()) {
        came_ = must_come_ = 0;
        return base::TimePoint::max();
    }
    if (now >= weigh_at_ || now > yields_at_) {
        weigh_at_ = now + kWeighEvery;
        yields_at_ = weigh(now);
    }
    return std::min(yields_at_, weigh_at_);
}

base::TimePoint Arriving::weigh(base::TimePoint now) {
    bool has_room = false;
    bool is_short = false;
    std::uint64_t left = 0;
    for (const auto& [id, value] : values_) {
        if (value->has_room()) {
            has_room = true;
            is_short = is_short || value->budget()->is_short();
            left += value->left();
        }
    }
    if (!has_room) {
        came_ = must_come_ = 0;
        return base::TimePoint::max();
    }
    const bool enough = came_ >= must_come_;
    if (enough || !is_short) {
        since_ = last_came_;
        came_ = 0;
        must_come_ = std::min(left, kYieldBytes);
    }
    return is_short ? since_ + kYieldTimeout : now + kYieldTimeout;
}

void Arriving::waiting_requests(std::set<std::uint64_t>& into) const {
    if (waiting_ == 0) {
        return;
    }
    for (const auto& [id, value] : values_) {
        if (value->waits_for_room()) {
            into.insert(id.request);
        }
    }
}

void Arriving::count_waiting() {
    waiting_ = static_cast<std::uint64_t>(std::ranges::count_if(
        values_, [](const auto& entry) { return entry.second->waits_for_room(); }));
}

void Arriving::abandon(std::uint64_t request) {
    std::erase_if(values_, [request](const auto& entry) { return entry.first.request == request; });
    count_waiting();
    abandoned_.push_back(request);
    if (abandoned_.size() > kRemembered) {
        abandoned_.pop_front();
    }
}

void Arriving::close() {
    values_.clear();
    count_waiting();
}

}  // namespace ucxstore::sessions

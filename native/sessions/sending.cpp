#include "sessions/sending.hpp"

#include <algorithm>
#include <utility>

#include "base/ensure.hpp"
#include "memory/crc32c.hpp"
#include "sessions/answer.hpp"
#include "storage/quota.hpp"

namespace ucxstore::sessions {
namespace {

// Why a request has failed that gets this reply; nullopt where it has not.
std::optional<base::Failing> failing(protocol::Status status) {
    switch (status) {
        case protocol::Status::denied:
            return base::Failing::denied;
        case protocol::Status::read_only:
            return base::Failing::read_only;
        case protocol::Status::invalid_key:
            return base::Failing::invalid_key;
        case protocol::Status::storage:
            return base::Failing::storage;
        case protocol::Status::ended:
            return base::Failing::ended;
        case protocol::Status::evicted:
            return base::Failing::evicted;
        case protocol::Status::busy:
            return base::Failing::busy;
        case protocol::Status::altered:
            return base::Failing::altered;
        case protocol::Status::unknown:
            return base::Failing::unknown;
        default:
            return std::nullopt;
    }
}

// Whether the client's request fails with this reply.
bool fails(protocol::Status status) {
    switch (status) {
        case protocol::Status::ok:
        case protocol::Status::missing:
        case protocol::Status::kept:
        case protocol::Status::changed:
        case protocol::Status::shown:
        case protocol::Status::unmoved:
        case protocol::Status::going_on:
        case protocol::Status::leaving:
            return false;
        default:
            return true;
    }
}

// What a reply takes besides its payload: our notes of it, and what the carrier has.
constexpr std::uint64_t kMessageBytes = 512;
constexpr std::uint64_t kLittle = 4096;

// How many requests are remembered that have failed, until the client abandons them.
constexpr std::size_t kMostFailed = 256;

bool has_no_room(const std::exception& failure) {
    const auto* const error = dynamic_cast<const base::Error*>(&failure);
    return dynamic_cast<const storage::NoRoomError*>(&failure) != nullptr ||
           dynamic_cast<const std::bad_alloc*>(&failure) != nullptr ||
           (error != nullptr && error->kind() == base::ErrorKind::memory);
}

}  // namespace

// Of a value that is sent from where it lies, the list of its pieces; so few of them that take
// little are in flight that these do not count.
Sending::Amount Sending::Message::amount() const {
    std::uint64_t held = payload.size() + pieces.size() * sizeof(ucp_dt_iov_t);
    if (value == nullptr) {
        held += kMessageBytes;
    } else if (held < kLittle) {
        held = 0;
    }
    return {header.length, was_read ? header.length : 0,
            held,          was_fetched ? header.length : 0,
            timed,         counts};
}

void Sending::close() {
    on_sent_ = nullptr;
    log_.close(client_->last_moved());
    load_ = nullptr;
    timed_.clear();
    values_.clear();
    waiting_.clear();
    end();
}

void Sending::add(PendingGet get) {
    if (reads_as_it_sends()) {
        get.read_as_sent();
    }
    values_.push_back(std::move(get));
}

Sending::Sent Sending::send_next() {
    if (values_.empty()) {
        return Sent::none;
    }
    PendingGet& next = values_.front();
    if (next.waits()) {
        waiting_.push_back(std::move(next));
        values_.pop_front();
        return Sent::some;
    }
    Account& account = *client_->account();
    if (const std::uint64_t read = next.next_is_read(); read > 0 &&
                                                        account.held(Held::read_bytes) > 0 &&
                                                        !account.has_room(Held::read_bytes, read)) {
        return Sent::no_room;
    }
    if (next.must_load()) {
        PendingGet loading = std::move(next);
        values_.pop_front();
        load_(std::move(loading));
        return Sent::some;
    }
    bool more = false;
    try {
        Segment segment = next.next(least_piece());
        Message message;
        message.header = segment.header;
        message.pieces = std::move(segment.pieces);
        message.payload = std::move(segment.packed);
        message.was_read = segment.owner != nullptr;
        message.was_fetched = next.is_charged();
        message.value = message.was_read ? segment.owner : next.value();
        message.reading = std::move(segment.reading);
        more = !next.done();
        if (!more) {
            message.timed = next.timed();
            log_.note(message.timed.line, protocol::Status::ok, next.size());
        }
        give(std::move(message));
    } catch (const std::exception& error) {
        more = false;
        fail(next.id(), error, next.timed());
    }
    if (!more) {
        values_.pop_front();
    }
    return Sent::some;
}

void Sending::abandon(std::uint64_t request) {
    const auto concerned = [request](const PendingGet& one) { return one.id().request == request; };
    std::erase_if(values_, concerned);
    std::erase_if(waiting_, concerned);
    std::erase_if(timed_, [request](const auto& one) { return one.first.request == request; });
    std::erase(failed_, request);
    log_.abandon(request, client_->last_moved());
}

bool Sending::has_failed(std::uint64_t request) const {
    return std::ranges::find(failed_, request) != failed_.end();
}

void Sending::time(const ItemId& id, base::RequestKind kind, std::uint32_t line) {
    timed_.insert_or_assign(id, Timed{.kind = kind, .line = line, .begun = client_->last_moved()});
}

Timed Sending::end_of(const ItemId& id, protocol::Status status) {
    if (timed_.empty() || status == protocol::Status::going_on ||
        status == protocol::Status::leaving) {
        return {};
    }
    const auto node = timed_.extract(id);
    return node.empty() ? Timed() : node.mapped();
}

void Sending::fail(const ItemId& id, const std::exception& error, Timed timed) {
    const bool full = has_no_room(error);
    reply(
        id, status_of(error),
        dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "not enough memory" : error.what(),
        timed, full ? base::Failing::full : failing(status_of(error)));
}

void Sending::reply(const ItemId& id, protocol::Status status, std::string payload, Timed timed) {
    const auto why = failing(status);
    reply(id, status, std::move(payload), timed,
          why == base::Failing::storage && reads_through_ ? base::Failing::source : why);
}

void Sending::reply(const ItemId& id, protocol::Status status, std::string payload, Timed timed,
                    std::optional<base::Failing> why) {
    if (why) {
        client_->count_failed(*why);
    }
    give(make_reply(id, status, std::move(payload), timed));
}

void Sending::tell(const ItemId& id, std::string about) {
    Message message = make_reply(id, protocol::Status::ok, std::move(about), {});
    message.counts = false;
    give(std::move(message));
}

Sending::Message Sending::make_reply(const ItemId& id, protocol::Status status, std::string payload,
                                     Timed timed) {
    if (status != protocol::Status::ok) {
        payload.resize(std::min(payload.size(), protocol::kMaxErrorBytes));
    }
    Message message;
    message.payload = std::move(payload);
    message.header.request = id.request;
    message.header.item = id.item;
    message.header.status = status;
    message.header.reply_size = message.payload.size();
    message.header.segment = std::max(message.payload.size(), protocol::kMinSegmentBytes);
    message.header.length = message.payload.size();
    message.timed = timed.begun == base::TimePoint{} ? end_of(id, status) : timed;
    log_.note(message.timed.line, status,
              status == protocol::Status::ok ? message.payload.size() : 0);
    return message;
}

void Sending::refuse(const ItemId& id, const protocol::Refusal& refusal, Timed timed) {
    Message message;
    message.header.request = id.request;
    message.header.item = id.item;
    message.header.status = refusal.status;
    message.header.value_size = refusal.value_size;
    message.header.version = refusal.version;
    message.header.segment = protocol::kMinSegmentBytes;
    message.timed = timed;
    log_.note(timed.line, refusal.status,
              refusal.status == protocol::Status::shown ? refusal.value_size : 0);
    give(std::move(message));
}

void Sending::give(Message message) {
    message.header.token = token_;
    if (fails(message.header.status) && !has_failed(message.header.request)) {
        failed_.push_back(message.header.request);
        if (failed_.size() > kMostFailed) {
            failed_.pop_front();
        }
    }
    const Amount amount = message.amount();
    const std::shared_ptr<Reading> reading = message.reading;
    begin_message(amount);
    if (reading != nullptr) {
        ++reading->messages;
    }
    bool given = false;
    try {
        given = send(std::move(message));
    } catch (const std::exception&) {
        end_message(amount, reading);
        throw;
    }
    if (!given) {  // the client is gone, and the session about to go
        end_message(amount, reading);
        return;
    }
    client_->note_in_flight(in_flight_.bytes);
}

void Sending::begin_message(Amount amount) {
    if (messages_++ == 0) {
        last_sent_ = base::Clock::now();
    }
    in_flight_.bytes += amount.bytes;
    in_flight_.held += amount.held;
    in_flight_.read += amount.read;
    in_flight_.fetched += amount.fetched;
    if (amount.held + amount.read + amount.fetched > 0) {
        Account& account = *client_->account();
        account.add(Held::reply_bytes, amount.held, true);
        account.add(Held::read_bytes, amount.read, true);
        account.add(Held::fetched_bytes, amount.fetched, true);
    }
}

void Sending::end_message(Amount amount, const std::shared_ptr<Reading>& reading) {
    base::ensure(messages_ > 0 && in_flight_.bytes >= amount.bytes, "a message completes once");
    --messages_;
    in_flight_.bytes -= amount.bytes;
    in_flight_.held -= amount.held;
    in_flight_.read -= amount.read;
    in_flight_.fetched -= amount.fetched;
    if (amount.held + amount.read + amount.fetched > 0) {
        Account& account = *client_->account();
        account.remove(Held::reply_bytes, amount.held);
        account.remove(Held::read_bytes, amount.read);
        account.remove(Held::fetched_bytes, amount.fetched);
    }
    if (reading == nullptr || --reading->messages > 0) {
        return;
    }
    const auto waited = std::ranges::find(waiting_, reading, &PendingGet::reading);
    if (waited != waiting_.end()) {
        values_.push_front(std::move(*waited));
        waiting_.erase(waited);
    }
}

void Sending::sent(Amount amount, bool arrived, const std::shared_ptr<Reading>& reading) {
    end_message(amount, reading);
    client_->moved();
    last_sent_ = client_->last_moved();
    client_->note_in_flight(in_flight_.bytes);
    if (!arrived) {
        broke_off_ = true;
        return;
    }
    if (amount.counts) {
        client_->count_sent(amount.bytes);
    }
    client_->count_latency(amount.timed);
    log_.end(amount.timed.line, client_->last_moved());
    try {
        if (on_sent_) {
            on_sent_();
        }
    } catch (const std::exception&) {  // for want of memory; none may pass through UCX
        client_->doom();
    }
}

Sending::Amount Sending::begin_other(std::uint64_t bytes) {
    const Amount amount{.held = bytes + kMessageBytes};
    begin_message(amount);
    return amount;
}

void Sending::other_sent(Amount amount) {
    end_message(amount, nullptr);
    last_sent_ = base::Clock::now();
}

void Sending::forget_in_flight() {
    Account& account = *client_->account();
    account.remove(Held::reply_bytes, in_flight_.held);
    account.remove(Held::read_bytes, in_flight_.read);
    account.remove(Held::fetched_bytes, in_flight_.fetched);
    in_flight_ = {};
    messages_ = 0;
}

std::uint32_t Sending::sum_of(const Message& message) {
    if (message.pieces.empty()) {
        return memory::crc32c(std::as_bytes(std::span(message.payload)));
    }
    if (message.was_read || message.value->pieced()) {
        return memory::crc32c(message.pieces);
    }
    std::uint32_t sum = 0;
    for (const ucp_dt_iov_t& piece : message.pieces) {
        const auto* const begin = static_cast<const std::byte*>(piece.buffer);
        const auto offset = static_cast<std::uint64_t>(begin - message.value->data());
        sum = piece.length < memory::KeptSums::kBlock
                  ? memory::crc32c({begin, piece.length}, sum)
                  : memory::join_crc32c(sum, message.value->checksum(offset, piece.length),
                                        piece.length);
    }
    return sum;
}

}  // namespace ucxstore::sessions

#include "client/conversation.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "client/link_events.hpp"

namespace ucxstore::client {
namespace {

// Requests are not sent any more to a server that ends, but for those that are being begun as it
// says so. So the connection stays until it has had nothing to do for so long.
constexpr std::chrono::milliseconds kIdleMoment{50};

constexpr const char* kLeft = "the server ends, restarts, or has no room for idle clients";

}  // namespace

// ---- what is sent ----

void Conversation::start(const Pointer& operation) {
    if (carrier_.failed()) {
        operation->fail(base::ErrorKind::server_lost, {peer_, ": ", cause_});
        operation->complete();
        return;
    }
    try {
        begin(operation);
    } catch (const std::exception& error) {
        operation->fail(error, {peer_, ": "});
        if (operation->registered) {
            finish(operation);
        } else {
            operation->complete();
        }
    }
}

void Conversation::begin(const Pointer& operation) {
    operation->moved(base::Clock::now());
    all_.emplace(operation->id, One{operation});
    operation->registered = true;
    ++registered_;
    if (operation->items.empty()) {
        finish(operation);
        return;
    }
    for (auto& outgoing : std::exchange(operation->requests, {})) {
        request(*operation, std::move(outgoing));
    }
    if (operation->sends_values() && !carrier_.send_file(operation)) {
        queue_values(operation);
    }
}

void Conversation::cancel(const Pointer& operation) {
    if (operation->registered) {
        operation->fail(base::ErrorKind::cancelled, {peer_, ": the request was cancelled"});
        finish(operation);
    }
}

void Conversation::request(const Operation& operation, Outgoing outgoing) {
    outgoing.header.token = token_;
    outgoing.header.request = operation.id;
    carrier_.send_request(std::move(outgoing));
}

void Conversation::queue_values(const Pointer& operation) {
    for (std::uint32_t i = 0; i < operation->items.size(); ++i) {
        values_.push_back({operation, i});
    }
    carrier_.pump();
}

protocol::ValueHeader Conversation::value_header(const Operation& operation, std::uint32_t index,
                                                 std::uint64_t segment) const {
    const Item& item = operation.items[index];
    const std::uint64_t total = item.memory->size();
    return {.token = token_,
            .request = operation.id,
            .item = index,
            .if_absent = operation.kind == Operation::Kind::set_if_absent,
            .total = total,
            .segment = segment,
            .offset = item.next,
            .length = std::min(segment, total - item.next)};
}

std::optional<Conversation::Value> Conversation::next_value() {
    while (!values_.empty()) {
        const Value& next = values_.front();
        const Item& item = next.operation->items[next.item];
        if (next.operation->registered && !item.done) {
            const bool waits = item.next == 0 && unanswered_ >= protocol::kMaxUnanswered;
            return waits ? std::nullopt : std::optional(next);
        }
        values_.pop_front();  // failed, or refused by the server, meanwhile
    }
    return std::nullopt;
}

void Conversation::count_unanswered(Operation& operation, std::int64_t values) {
    operation.unanswered += values;
    unanswered_ += values;
}

void Conversation::fail_value(const Value& value, const std::exception& error) {
    const std::string& key = value.operation->items[value.item].key;
    value.operation->fail(error, {peer_, ": sending '", key, "': "});
    finish(value.operation);
}

// ---- what comes ----

Conversation::Pointer Conversation::find(std::uint64_t id) const {
    const auto found = all_.find(id);
    const bool there = found != all_.end() && found->second.operation->registered;
    return there ? found->second.operation : nullptr;
}

Conversation::Pointer Conversation::on_reply(const protocol::ReplyHeader& header) {
    if (header.status == protocol::Status::leaving) {
        leaving_ = true;
        return nullptr;
    }
    Pointer operation = find(header.request);
    if (operation == nullptr) {
        return nullptr;
    }
    moved(*operation);
    return header.status == protocol::Status::going_on ? nullptr : operation;
}

void Conversation::moved(Operation& operation) {
    last_moved_ = base::Clock::now();
    operation.moved(last_moved_);
}

void Conversation::segment_arrived(const Pointer& operation, Item& item, std::uint64_t length) {
    if (!operation->registered) {
        return;
    }
    moved(*operation);
    item.received += length;
    if (item.received == item.size && !item.done) {
        item_done(operation, item);
    }
}

void Conversation::item_done(const Pointer& operation, Item& item) {
    const bool answered = operation->unanswered > 0;
    if (answered) {
        count_unanswered(*operation, -1);
    }
    if (operation->item_done(item)) {
        finish(operation);
    } else if (answered) {
        carrier_.pump();
    }
}

// ---- the end of an operation ----

void Conversation::finish(const Pointer& operation) {
    if (!operation->registered) {
        return;
    }
    const Pointer kept = operation;  // it may be the map's own
    carrier_.stop(*kept);
    if (!kept->failed()) {
        report_slow(peer_, *kept);
    } else if (!carrier_.failed()) {
        try {
            request(*kept, {{{}, 0, protocol::Op::abandon, 0, 0, 0}, {}});
        } catch (const std::exception&) {  // for want of memory: what comes of it is dropped
        }
    }
    kept->registered = false;
    --registered_;
    unanswered_ -= std::exchange(kept->unanswered, 0);
    if (kept->active > 0) {
        all_.find(kept->id)->second.ended = base::Clock::now();
    } else {
        released(kept);
    }
    if (!values_.empty()) {
        carrier_.pump();
    }
}

void Conversation::released(const Pointer& operation) {
    if (operation->active == 0 && !operation->registered && all_.erase(operation->id) > 0) {
        operation->complete();
    }
}

Conversation::Due Conversation::unreleased(base::TimePoint now, base::Clock::duration time) const {
    Due due;
    for (const auto& [id, one] : all_) {
        if (one.operation->registered) {
            continue;
        }
        if (one.ended + time <= now) {
            due.operations.push_back(one.operation);
        } else {
            due.next = std::min(due.next, one.ended + time);
        }
    }
    return due;
}

void Conversation::wait_anew(base::TimePoint now) {
    for (auto& [id, one] : all_) {
        if (!one.operation->registered) {
            one.ended = now;
        }
    }
}

void Conversation::leak(const std::vector<Pointer>& operations, std::string_view why) {
    for (const Pointer& operation : operations) {
        if (!operation->registered && all_.erase(operation->id) > 0) {
            operation->fail(base::ErrorKind::server_lost, {peer_, ": ", why});
            operation->complete(true);
        }
    }
}

// ---- deadlines, and the end of all ----

base::TimePoint Conversation::tick(base::TimePoint now) {
    return std::min({time_out(now), hang_up(now)});
}

// Those that are registered, and whose deadline has passed. What has not begun to be sent waits for
// others: its time runs from when any of them moved last.
Conversation::Due Conversation::late(base::TimePoint now) const {
    Due due;
    for (const auto& [id, one] : all_) {
        const Pointer& operation = one.operation;
        if (!operation->registered) {
            continue;
        }
        if (operation->deadline() <= now && operation->waits_to_be_sent()) {
            operation->moved_at_least(last_moved_);
        }
        if (operation->deadline() <= now) {
            due.operations.push_back(operation);
        } else {
            due.next = std::min(due.next, operation->deadline());
        }
    }
    return due;
}

base::TimePoint Conversation::time_out(base::TimePoint now) {
    const auto [late, next] = this->late(now);
    for (const Pointer& operation : late) {
        if (!operation->registered) {
            continue;  // the connection has ended with the operation before it
        }
        const std::string text = operation->late_text();
        operation->fail(base::ErrorKind::timeout, {peer_, ": ", text});
        const bool stuck = operation->active > 0;
        finish(operation);
        if (stuck) {
            carrier_.on_stuck(text);
        }
    }
    return next;
}

base::TimePoint Conversation::hang_up(base::TimePoint now) {
    if (!leaving() || !empty() || carrier_.failed()) {
        idle_since_ = base::TimePoint::max();
        return base::TimePoint::max();
    }
    idle_since_ = std::min(idle_since_, now);
    if (idle_since_ + kIdleMoment > now) {
        return idle_since_ + kIdleMoment;
    }
    carrier_.shut(kLeft);
    return base::TimePoint::max();
}

void Conversation::end(base::ErrorKind kind, std::string_view why) {
    try {
        cause_ = why;
    } catch (const std::bad_alloc&) {  // it is just closed then
    }
    values_.clear();
    for (auto at = all_.begin(); at != all_.end();) {
        const Pointer operation = at++->second.operation;  // it may go with its end
        if (!operation->registered) {
            continue;
        }
        std::string about;
        try {
            about = kind == base::ErrorKind::integrity ? operation->waiting_for() : "";
        } catch (const std::bad_alloc&) {  // it is not named then
        }
        operation->fail(kind, {peer_, ": ", about, why});
        finish(operation);
    }
}

void Conversation::report_end(bool lost, std::string_view why) const {
    report(lost ? base::log::warning : base::log::info,
           lost ? base::log::EventKind::lost : base::log::EventKind::closed, peer_, why,
           registered_);
}

std::string Conversation::cause_of(const base::Error& error) {
    const bool broken = error.kind() == base::ErrorKind::protocol;
    return (broken ? "the server broke the protocol: " : "") + std::string(error.what());
}

}  // namespace ucxstore::client

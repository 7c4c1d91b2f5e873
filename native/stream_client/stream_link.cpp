#include "stream_client/stream_link.hpp"

#include <poll.h>

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "client/batch.hpp"
#include "client/link_events.hpp"
#include "client/reply.hpp"
#include "memory/crc32c.hpp"
#include "stream/frames.hpp"

namespace ucxstore::stream_client {
namespace {

using namespace std::chrono_literals;

constexpr auto kRest = 100ms;

// A moment for whoever waits for the thread, and long beside what it takes to begin another turn.
constexpr auto kTurn = 1ms;

// How often a caller that reads looks whether others have ended its operation.
constexpr auto kLook = 20ms;

constexpr const char* kVanished =
    "the server's host has acknowledged nothing of what was sent to it for 25 s";
constexpr const char* kChanged = "a reply was changed on its way";

// Holds an operation while a message uses its memory: until that has gone or is dropped.
class InUse {
  public:
    explicit InUse(std::shared_ptr<client::Operation> operation)
        : operation_(std::move(operation)) {
        ++operation_->active;
    }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;
    ~InUse() { --operation_->active; }

  private:
    const std::shared_ptr<client::Operation> operation_;
};

}  // namespace

StreamLink::StreamLink(std::shared_ptr<threads::EventThread> thread, base::Fd socket,
                       const protocol::Token& token, std::string peer,
                       std::function<void(base::TimePoint)> due,
                       const stream::Protection& protection)
    : thread_(std::move(thread)),
      due_(std::move(due)),
      socket_(std::move(socket), *this, nullptr, protection.keys),
      conversation_(token, std::move(peer), *this),
      checked_(protection.checked && !protection.keys),
      encrypted_(protection.keys) {
    if (checked_) {
        socket_.sum_bodies();
    }
}

// ---- any thread ----

void StreamLink::submit(const std::shared_ptr<client::Operation>& operation) {
    if (operation->kind == client::Operation::Kind::get && !operation->items.empty()) {
        operation->requests = client::request_gets(*operation);
    }
    start(operation, [] {});
}

void StreamLink::submit_later(const std::shared_ptr<client::Operation>& operation) {
    if (!thread_->post(
            [self = shared_from_this(), operation] { self->start_in_turn(operation, false); })) {
        fail_closed(*operation);
    }
}

void StreamLink::fail_closed(client::Operation& operation) const {
    operation.fail(base::ErrorKind::server_lost, {peer(), ": the client is closed"});
    operation.complete();
}

bool StreamLink::wait_for(client::Operation& operation, std::chrono::milliseconds time) {
    const base::TimePoint end = base::Clock::now() + time;
    const auto left = [end](std::chrono::milliseconds most) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - base::Clock::now());
        return std::clamp(left, 0ms, most);
    };
    bool reads = false;
    bool more = false;  // to read, whatever the kernel says
    thread_->wait_and_stand_in([&] { reads = begin_reading(operation); });
    while (reads) {
        pollfd events{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
        events.events |= caller_writes_ ? POLLOUT : 0;
        int count = 0;
        if (!more && !spin_.until([&] { return (count = poll(&events, 1, 0)) != 0; })) {
            count = poll(&events, 1, static_cast<int>(left(kLook).count()));
        }
        const bool goes_on = thread_->wait_and_stand_in([&] {
            if (count > 0) {
                socket_.readable();
            }
            more = move_once(true);
            reads = count >= 0 && left(time) > 0ms && !operation.done() && !closed_;
            if (!reads) {
                end_reading(more);
            } else {
                caller_writes_ = waits_;
                watch(false);
            }
        });
        reads = reads && goes_on;
    }
    return operation.wait_for(left(time));
}

void StreamLink::cancel(const std::shared_ptr<client::Operation>& operation) {
    threads::post_or_wait(*thread_, [self = shared_from_this(), operation] {
        self->conversation_.cancel(operation);
    });
}

void StreamLink::close() {
    threads::post_or_wait(*thread_,
                          [self = shared_from_this()] { self->shut("the connection was closed"); });
}

// ---- the thread: how it begins and ends ----

void StreamLink::begin() {
    thread_->watch(socket_.fd(), [this] {
        socket_.readable();
        move();
    });
    watched_ = true;
    client::report(base::log::info, base::log::EventKind::connected, peer(), lane());
}

void StreamLink::end(base::ErrorKind kind, std::string_view message, bool lost) {
    if (closed_.exchange(true)) {
        return;
    }
    conversation_.report_end(lost, message);
    thread_->unwatch(socket_.fd());
    socket_.end();
    clear();
    conversation_.end(kind, message);
    due_(base::TimePoint::min());
}

void StreamLink::begin_turn() { turn_end_ = base::Clock::now() + kTurn; }

bool StreamLink::move_once(bool reads) {
    begin_turn();
    try {
        const bool more = reads && socket_.read();
        if (socket_.has_more()) {
            waits_ = socket_.flush();
            pump();  // what has gone may be the rest of a cancelled one, which tells nobody
            go_on();
        }
        if (socket_.ended()) {
            end(base::ErrorKind::server_lost, why_gone(), true);
        }
        return more && !closed_;
    } catch (const base::Error& error) {
        end(error.kind(), client::Conversation::cause_of(error), true);
    } catch (const std::exception& error) {
        end(base::ErrorKind::server_lost, error.what(), true);
    }
    return false;
}

void StreamLink::move() {
    if (closed_) {
        return;
    }
    if (move_once(!caller_reads_)) {
        post_move();
    }
    watch(watched_);
}

void StreamLink::post_move() {
    if (!move_posted_) {
        thread_->post([self = shared_from_this()] {
            self->move_posted_ = false;
            self->move();
        });
        move_posted_ = true;
    }
}

void StreamLink::go_on() {
    if (!closed_ && !waits_ && socket_.has_more() && !socket_.flushes()) {
        post_move();
    }
}

void StreamLink::watch(bool readable) {
    const bool writable = waits_ && !caller_writes_;
    if (!closed_ && (readable != watched_ || writable != watched_writable_)) {
        thread_->watch_for(socket_.fd(), readable, writable);
        watched_ = readable;
        watched_writable_ = writable;
    }
}

// ---- a caller that reads ----

bool StreamLink::begin_reading(const client::Operation& operation) {
    if (closed_ || caller_reads_ || !operation.registered) {
        return false;
    }
    caller_reads_ = true;
    caller_writes_ = waits_;
    watch(false);
    return true;
}

// `more`: there may be more to read.
void StreamLink::end_reading(bool more) {
    caller_reads_ = false;
    caller_writes_ = false;
    if (more) {
        post_move();
    }
    if (conversation_.empty()) {
        rest();
    }
    watch(!conversation_.empty());
}

// The thread watches again a moment later: callers that wait come one after the other.
void StreamLink::rest() {
    rests_until_ = base::Clock::now() + kRest;
    due_(rests_until_);
}

base::TimePoint StreamLink::tick(base::TimePoint now) {
    socket_.look(now);
    if (socket_.vanished()) {
        end(base::ErrorKind::server_lost, kVanished, true);
    }
    const base::TimePoint due = std::min(conversation_.tick(now), socket_.look_at());
    if (watched_ || caller_reads_ || closed_) {
        return due;
    }
    if (now >= rests_until_) {
        watch(true);
        return due;
    }
    return std::min(due, rests_until_);
}

// ---- what is sent ----

void StreamLink::start_in_turn(const Pointer& operation, bool caller_reads) {
    begin_turn();
    conversation_.start(operation);
    if (!operation->registered) {
        return;
    }
    due_(operation->deadline());
    if (!watched_ && !caller_reads_) {
        if (caller_reads) {
            rest();
        } else {
            watch(true);
        }
    }
}

void StreamLink::send(stream::OutMessage message) {
    waits_ = socket_.send(std::move(message)) || waits_;
    go_on();
    watch(watched_);
    due_(socket_.look_at());
}

void StreamLink::send_request(client::Outgoing outgoing) {
    outgoing.header.flags |= checked_ ? protocol::kChecked : 0;
    std::string header = stream::raw(outgoing.header);
    if (checked_) {
        protocol::append_sums(header, memory::crc32c(std::as_bytes(std::span(outgoing.body))));
    }
    send({.kind = stream::FrameKind::request,
          .header = std::move(header),
          .body = std::move(outgoing.body)});
}

void StreamLink::pump() {
    conversation_.send_values(
        [this](const Pointer& operation, client::Item& item, std::uint32_t index) {
            return !closed_ && send_segment(operation, item, index);
        });
}

// One at a time waits for the kernel, which has enough of them: so the others stay where they are.
bool StreamLink::send_segment(const Pointer& operation, client::Item& item, std::uint32_t index) {
    if (socket_.has_more()) {
        return false;
    }
    const protocol::ValueHeader header =
        conversation_.value_header(*operation, index, stream::kStreamSegmentBytes);
    stream::OutMessage message{.kind = stream::FrameKind::value,
                               .header = stream::raw(header) + item.key};
    item.memory->pieces(header.offset, header.length, message.pieces);
    if (checked_) {
        protocol::append_sums(message.header, memory::crc32c(message.pieces));
    }
    message.owner = operation.get();
    message.sent = [this, operation, use = std::make_shared<InUse>(operation)]() mutable {
        use.reset();
        conversation_.moved(*operation);
        conversation_.released(operation);
        pump();
    };
    item.next += header.length;
    send(std::move(message));
    return true;
}

// ---- what comes ----

// Takes the sums off a header that has some. Throws Error(integrity) where it was changed.
protocol::Sum StreamLink::take_sums(std::string_view& header) const {
    if (!checked_) {
        return std::nullopt;
    }
    std::size_t size = header.size();
    const protocol::Sum sum = protocol::take_sums(header.data(), size);
    if (!sum) {
        throw base::Error(base::ErrorKind::integrity, kChanged);
    }
    header = header.substr(0, size);
    return sum;
}

std::optional<std::vector<ucp_dt_iov_t>> StreamLink::place(stream::FrameKind kind,
                                                           std::string_view bytes,
                                                           std::uint64_t body_bytes) {
    if (kind != stream::FrameKind::reply) {
        if (body_bytes > 0) {
            throw base::Error(base::ErrorKind::protocol, "a body where none belongs");
        }
        return std::nullopt;
    }
    const protocol::Sum sum = take_sums(bytes);
    const auto header = protocol::read_header<protocol::ReplyHeader>(bytes.data(), bytes.size());
    if (!header || header->token != conversation_.token()) {
        throw base::Error(base::ErrorKind::protocol, "a reply without its header");
    }
    const auto operation = conversation_.find(header->request);
    if (operation == nullptr || header->status != protocol::Status::ok ||
        operation->sends_values()) {
        return std::nullopt;
    }
    conversation_.moved(*operation);
    client::note_reply(peer(), *operation, *header, {});
    client::note_segment(*operation, *header, body_bytes);
    auto pieces = client::pieces_of(operation->items[header->item], *header);
    filling_ = {operation, *header, sum};
    return pieces;
}

void StreamLink::take(stream::InMessage message) {
    if (message.kind == stream::FrameKind::reply) {
        on_reply(message);
    } else {
        take_other(std::move(message));
    }
}

void StreamLink::take_other(stream::InMessage) {
    throw base::Error(base::ErrorKind::protocol, "a message that no server sends");
}

void StreamLink::on_reply(const stream::InMessage& message) {
    const auto filled = std::exchange(filling_, std::nullopt);
    if (message.forged) {
        if (filled) {
            fail_altered(*filled->operation, filled->operation->items[filled->header.item]);
        }
        throw base::Error(base::ErrorKind::integrity, kChanged);
    }
    if (filled) {
        return on_filled(*filled, message.sum);
    }
    std::string_view bytes = message.header;
    const protocol::Sum sum = take_sums(bytes);
    const auto header = protocol::read_header<protocol::ReplyHeader>(bytes.data(), bytes.size());
    const auto operation = conversation_.on_reply(*header);
    if (operation == nullptr) {
        if (leaving()) {
            due_(base::TimePoint::min());
        }
        return;
    }
    if (sum && message.sum != *sum && header->item < operation->items.size()) {
        return altered(operation, operation->items[header->item]);
    }
    if (take_reply(operation, *header)) {
        return;
    }
    client::note_reply(peer(), *operation, *header, message.body);
    if (header->status == protocol::Status::altered) {
        conversation_.finish(operation);
    } else {
        conversation_.item_done(operation, operation->items[header->item]);
    }
}

void StreamLink::on_filled(const Filling& filled, std::uint32_t sum) {
    client::Item& item = filled.operation->items[filled.header.item];
    if (filled.sum && sum != *filled.sum) {
        return altered(filled.operation, item);
    }
    conversation_.segment_arrived(filled.operation, item, filled.header.length);
}

void StreamLink::fail_altered(client::Operation& operation, const client::Item& item) const {
    operation.fail(
        base::ErrorKind::integrity,
        {peer(), ": '", item.key, "' was changed on its way here: a message does not fit its ",
         encrypted_ ? "tag" : "checksum"});
}

void StreamLink::altered(const Pointer& operation, const client::Item& item) {
    fail_altered(*operation, item);
    conversation_.finish(operation);
}

void StreamLink::stop(const client::Operation& operation) {
    try {
        if (filling_ && filling_->operation.get() == &operation) {
            filling_.reset();
            socket_.redirect();
        }
        socket_.disown(&operation);
    } catch (const std::bad_alloc&) {  // without memory to copy to, it ends for all
        socket_.end();
    }
    if (leaving()) {
        due_(base::TimePoint::min());
    }
}

}  // namespace ucxstore::stream_client

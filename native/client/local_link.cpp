#include "client/local_link.hpp"

#include <fcntl.h>

#include <utility>

#include "base/copier.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "client/batch.hpp"
#include "client/charge.hpp"
#include "client/link_events.hpp"
#include "client/reply.hpp"
#include "protocol/keys.hpp"

namespace ucxstore {

using local::InMessage;
using local::Kind;
using local::OutMessage;

namespace {

template <typename Header>
std::string raw(const Header& header) {
    return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

}  // namespace

LocalLink::LocalLink(std::shared_ptr<EventThread> thread, Fd socket, const wire::Token& token,
                     std::string peer, std::function<void(TimePoint)> due)
    : thread_(std::move(thread)),
      token_(token),
      peer_(std::move(peer)),
      due_(std::move(due)),
      socket_(std::move(socket), *this) {}

// ---- any thread ----

void LocalLink::submit(const std::shared_ptr<Operation>& operation) {
    if (operation->kind == Operation::Kind::get && !operation->items.empty()) {
        operation->large = operation->memory_bytes() >= Operation::kLargeBytes;
        std::vector<std::uint32_t> others;
        std::shared_ptr<const Visible> visible;
        for (std::uint32_t i = 0; i < operation->items.size(); ++i) {
            const std::string& key = operation->gets[i].key;
            if (i == 0 || wire::space_of(key) != wire::space_of(operation->gets[i - 1].key)) {
                visible = visible_for(key);
            }
            if (visible == nullptr || !visible->answer(peer_, *operation, i)) {
                others.push_back(i);
            } else if (operation->item_done(operation->items[i])) {
                report_slow(peer_, *operation);
                operation->complete();
                return;
            }
        }
        operation->requests = request_gets(*operation, others);
    }
    if (!thread_->post([self = shared_from_this(), operation] { self->start(operation); })) {
        operation->fail(ErrorKind::server_lost, peer_ + ": the client is closed");
        operation->complete();
    }
}

std::optional<std::uint64_t> LocalLink::see(std::string_view key, std::byte* out,
                                            std::uint64_t room) {
    const auto visible = visible_for(key);
    return visible == nullptr ? std::nullopt : visible->copy(key, out, room);
}

std::shared_ptr<const Visible> LocalLink::visible_for(std::string_view key) const {
    auto visible = closed_ ? nullptr : wire::space_of(key) ? spaces_.of(key) : visible_.load();
    return visible != nullptr && visible->usable() ? visible : nullptr;
}

std::shared_ptr<Region> LocalLink::hold(std::string_view key) {
    const auto visible = visible_for(key);
    return visible == nullptr ? nullptr : visible->hold(key);
}

bool LocalLink::takes_files(std::uint64_t bytes) const {
    if (closed_ || bytes < least_in_file_) {
        return false;
    }
    std::call_once(charge_looked_at_,
                   [this] { can_leave_memory_ = can_leave_memory(socket_.fd()); });
    return can_leave_memory_;
}

void LocalLink::cancel(const std::shared_ptr<Operation>& operation) {
    thread_->post([self = shared_from_this(), operation] {
        if (operation->registered) {
            operation->fail(ErrorKind::cancelled, self->peer_ + ": the request was cancelled");
            self->finish(operation);
        }
    });
}

std::function<void()> LocalLink::tell_held() {
    return [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
            self->thread_->post([self] {
                if (!self->closed_) {
                    self->send({.kind = Kind::held});
                }
            });
        }
    };
}

void LocalLink::close() {
    thread_->post([self = shared_from_this()] {
        self->end(ErrorKind::server_lost, "the connection was closed", false);
    });
}

// ---- the thread: how it begins and ends ----

void LocalLink::begin() {
    thread_->watch(socket_.fd(), [this] { move(); });
    report(log::info, log::Kind::connected, peer_, "local");
}

void LocalLink::end(ErrorKind kind, const std::string& message, bool lost) {
    if (closed_.exchange(true)) {
        return;
    }
    report(lost ? log::warning : log::info, lost ? log::Kind::lost : log::Kind::closed, peer_,
           message, in_flight_.registered());
    cause_ = message;
    thread_->unwatch(socket_.fd());
    socket_.end();
    values_.clear();
    uploaded_.clear();
    visible_.store(nullptr);
    spaces_.clear();
    for (const auto& operation : in_flight_.all()) {
        operation->fail(kind, peer_ + ": " + message);
        finish(operation);
    }
    due_(TimePoint::min());
}

TimePoint LocalLink::tick(TimePoint now) {
    const auto [late, next] = in_flight_.late(now);
    for (const auto& operation : late) {
        operation->fail(ErrorKind::timeout, peer_ + ": " + operation->late_text());
        finish(operation);
    }
    return next;
}

void LocalLink::move() {
    try {
        const bool more = socket_.read();
        if (waits_) {
            waits_ = socket_.flush();
            if (!waits_) {
                thread_->watch_writable(socket_.fd(), false);
            }
        }
        if (socket_.ended()) {
            end(ErrorKind::server_lost, "the server is gone", true);
        } else if (more) {
            thread_->post([self = shared_from_this()] {
                if (!self->closed_) {
                    self->move();
                }
            });
        }
    } catch (const Error& error) {
        const bool broken = error.kind() == ErrorKind::protocol;
        end(error.kind(),
            (broken ? "the server broke the protocol: " : "") + std::string(error.what()), true);
    } catch (const std::exception& error) {
        end(ErrorKind::server_lost, error.what(), true);
    }
}

// ---- what is sent ----

void LocalLink::start(const Pointer& operation) {
    if (closed_) {
        operation->fail(ErrorKind::server_lost,
                        peer_ + ": " + (cause_.empty() ? "the connection is closed" : cause_));
        operation->complete();
        return;
    }
    operation->moved(Clock::now());
    in_flight_.add(operation);
    due_(operation->deadline());
    if (operation->items.empty()) {
        finish(operation);
        return;
    }
    for (auto& outgoing : std::exchange(operation->requests, {})) {
        send_request(*operation, std::move(outgoing));
    }
    if (operation->file) {
        send_file(operation);
    } else if (operation->sends_values()) {
        send_values(operation);
    }
}

void LocalLink::send_values(const Pointer& operation) {
    for (std::uint32_t i = 0; i < operation->items.size(); ++i) {
        values_.push_back({operation, i});
    }
    pump();
}

void LocalLink::send(OutMessage message) {
    if (socket_.send(std::move(message)) && !std::exchange(waits_, true)) {
        thread_->watch_writable(socket_.fd(), true);
    }
}

void LocalLink::send_request(const Operation& operation, Outgoing outgoing) {
    outgoing.header.token = token_;
    outgoing.header.request = operation.id;
    send({.kind = Kind::request,
          .header = raw(outgoing.header),
          .body = std::move(outgoing.body)});
}

void LocalLink::send_file(const Pointer& operation) {
    const Item& item = operation->items.front();
    const std::uint64_t size = item.memory->size();
    const wire::ValueHeader header{.token = token_,
                                   .request = operation->id,
                                   .item = 0,
                                   .if_absent = operation->kind == Operation::Kind::set_if_absent,
                                   .total = size,
                                   .segment = size,
                                   .offset = 0,
                                   .length = size};
    OutMessage message{.kind = Kind::file, .header = raw(header) + item.key};
    message.descriptors.push_back(std::move(operation->file));
    operation->went_as_file = true;
    step();
    send(std::move(message));
    step();
}

void LocalLink::pump() {
    if (std::exchange(pumping_, true)) {
        return;
    }
    while (!closed_ && !values_.empty()) {
        const Value next = values_.front();
        Item& item = next.operation->items[next.item];
        if (!next.operation->registered || item.done) {
            values_.pop_front();  // failed, or refused by the server, meanwhile
            continue;
        }
        try {
            if (!send_segment(next.operation, item, next.item)) {
                break;
            }
        } catch (const std::exception& error) {
            next.operation->fail(ErrorKind::memory, "sending '" + item.key + "': " + error.what());
            finish(next.operation);
            continue;
        }
        if (item.next >= item.memory->size()) {
            values_.pop_front();
        }
    }
    pumping_ = false;
}

// False where there is no room for it yet.
bool LocalLink::send_segment(const Pointer& operation, Item& item, std::uint32_t index) {
    const Memory& memory = *item.memory;
    local::ValueHeader header{};
    header.value.token = token_;
    header.value.request = operation->id;
    header.value.item = index;
    header.value.if_absent = operation->kind == Operation::Kind::set_if_absent;
    header.value.total = memory.size();
    header.value.segment = local::kUploadSegmentBytes;
    header.value.offset = item.next;
    header.value.length = std::min(header.value.segment, header.value.total - header.value.offset);
    header.place = local::kInBody;
    OutMessage message{.kind = Kind::value};
    std::byte* target = nullptr;
    if (header.value.total <= local::kInlineBytes) {
        message.body.resize(header.value.length);
        target = reinterpret_cast<std::byte*>(message.body.data());
    } else {
        if (upload_ == nullptr) {
            auto upload = std::make_unique<Upload>();
            OutMessage shared{.kind = Kind::upload};
            shared.descriptors.emplace_back(fcntl(upload->descriptor(), F_DUPFD_CLOEXEC, 0));
            if (!shared.descriptors.back()) {
                throw_errno("a descriptor for the server", ErrorKind::resource);
            }
            send(std::move(shared));
            upload_ = std::move(upload);
        }
        const auto place = upload_->take(header.value.length);
        if (!place) {
            return false;
        }
        header.place = *place;
        target = upload_->data() + *place;
        uploaded_.emplace(*place, operation);
    }
    std::vector<ucp_dt_iov_t> pieces;
    memory.pieces(header.value.offset, header.value.length, pieces);
    step();
    Copier(pieces).gather(0, target, header.value.length, Write::cached);
    step();
    message.header = raw(header) + item.key;
    item.next += header.value.length;
    send(std::move(message));
    return true;
}

// ---- what comes ----

std::optional<std::vector<ucp_dt_iov_t>> LocalLink::place(Kind kind, std::string_view bytes,
                                                          std::uint64_t body_bytes) {
    if (kind != Kind::reply) {
        if (body_bytes > 0) {
            throw Error(ErrorKind::protocol, "a body where none belongs");
        }
        return std::nullopt;
    }
    const auto header = wire::read_header<wire::ReplyHeader>(bytes.data(), bytes.size());
    if (!header || header->token != token_) {
        throw Error(ErrorKind::protocol, "a reply without its header");
    }
    const auto operation = in_flight_.find(header->request);
    if (operation == nullptr || header->status != wire::Status::ok || operation->sends_values()) {
        return std::nullopt;
    }
    operation->moved(Clock::now());
    note_reply(peer_, *operation, *header, {});
    note_segment(*operation, *header, body_bytes);
    std::vector<ucp_dt_iov_t> pieces;
    Item& item = operation->items[header->item];
    if (item.memory) {
        item.memory->pieces(header->offset, header->length, pieces);
    } else {
        pieces.push_back({item.owned->data() + header->offset, header->length});
    }
    filling_ = {operation, *header};
    return pieces;
}

void LocalLink::take(InMessage message) {
    switch (message.kind) {
        case Kind::reply:
            return on_reply(message);
        case Kind::room: {
            const auto room =
                wire::read_header<local::RoomHeader>(message.header.data(), message.header.size());
            if (!room || upload_ == nullptr) {
                throw Error(ErrorKind::protocol, "room that was not taken");
            }
            upload_->give(room->place, room->length);
            if (const auto node = uploaded_.extract(room->place); !node.empty()) {
                node.mapped()->moved(Clock::now());
            }
            return pump();
        }
        case Kind::files: {
            const auto files =
                wire::read_header<local::FilesHeader>(message.header.data(), message.header.size());
            if (!files) {
                throw Error(ErrorKind::protocol, "no word of which files are taken");
            }
            least_in_file_ = files->least_bytes;
            return;
        }
        default:
            return see(message);
    }
}

void LocalLink::on_reply(const InMessage& message) {
    if (filling_) {
        const auto [operation, header] = *std::exchange(filling_, std::nullopt);
        Item& item = operation->items[header.item];
        operation->moved(Clock::now());
        item.received += header.length;
        if (item.received == item.size && !item.done) {
            item_done(operation, item);
        }
        return;
    }
    const auto header =
        wire::read_header<wire::ReplyHeader>(message.header.data(), message.header.size());
    const auto operation = in_flight_.find(header->request);
    if (operation == nullptr) {
        return;  // it has ended
    }
    operation->moved(Clock::now());
    if (header->status == wire::Status::shown) {
        on_shown(operation, header->item);
    } else if (header->status == wire::Status::unmoved) {
        on_unmoved(operation, header->item);
    } else {
        note_reply(peer_, *operation, *header, message.body);
        item_done(operation, operation->items[header->item]);
    }
}

void LocalLink::on_shown(const Pointer& operation, std::uint32_t number) {
    if (operation->kind != Operation::Kind::get || number >= operation->items.size() ||
        operation->items[number].done) {
        throw Error(ErrorKind::protocol, "'shown' for what was not wanted");
    }
    const auto visible = visible_for(operation->gets[number].key);
    if (visible != nullptr && visible->answer(peer_, *operation, number, true)) {
        item_done(operation, operation->items[number]);
        return;
    }
    // It has been replaced or removed meanwhile.
    for (Outgoing& outgoing : request_gets(*operation, {{number}})) {
        outgoing.header.flags = wire::kSendBytes;
        send_request(*operation, std::move(outgoing));
    }
}

void LocalLink::on_unmoved(const Pointer& operation, std::uint32_t number) {
    if (!std::exchange(operation->went_as_file, false) || number != 0) {
        throw Error(ErrorKind::protocol, "'unmoved' for what came in no file");
    }
    send_values(operation);
}

void LocalLink::see(InMessage& message) {
    if (VisibleSpaces::is_for_space(message)) {
        spaces_.see(message, tell_held());
    } else {
        visible_.store(renewed(visible_.load(), message, tell_held()));
    }
}

void LocalLink::item_done(const Pointer& operation, Item& item) {
    if (operation->item_done(item)) {
        finish(operation);
    }
}

void LocalLink::finish(const Pointer& operation) {
    if (filling_ && filling_->operation == operation) {
        filling_.reset();
        socket_.redirect();
    }
    if (operation->failed() && !closed_) {
        send_request(*operation, {{{}, 0, wire::Op::abandon, 0, 0, 0}, {}});
    }
    if (!operation->failed()) {
        report_slow(peer_, *operation);
    }
    in_flight_.end(operation);
}

}  // namespace ucxstore

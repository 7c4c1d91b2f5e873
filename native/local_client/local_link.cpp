#include "local_client/local_link.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "base/steps.hpp"
#include "client/batch.hpp"
#include "client/link_events.hpp"
#include "client/reply.hpp"
#include "local_client/memory_group.hpp"
#include "memory/copier.hpp"

namespace ucxstore {

using local::FrameKind;
using local::InMessage;
using local::OutMessage;
using local::raw;

namespace {

// How long a read of a file that is not wanted any more may wait for its disk. Then the caller gets
// its failure, and the memory is leaked: never freed while the kernel may write to it.
constexpr auto kLocalReleaseTimeout = std::chrono::seconds(10);

constexpr const char* kTakenBack =
    "the server has hung up, and has taken back memory that this process held too much of: views "
    "and "
    "mapped results of it may change";

}  // namespace

LocalLink::LocalLink(std::shared_ptr<EventThread> thread, std::shared_ptr<WorkerPool> pool,
                     Fd socket, const wire::Token& token, std::string peer,
                     std::function<void(TimePoint)> due)
    : thread_(std::move(thread)),
      pool_(std::move(pool)),
      token_(token),
      peer_(std::move(peer)),
      due_(std::move(due)),
      socket_(std::move(socket), *this) {}

// ---- any thread ----

void LocalLink::submit(const std::shared_ptr<Operation>& operation) {
    VisibleStorage::Unanswered unanswered;
    if (operation->kind == Operation::Kind::get && !operation->items.empty()) {
        operation->large = operation->memory_bytes() >= Operation::kLargeBytes;
        unanswered = visible_.answer(peer_, *operation);
        if (unanswered.empty()) {
            report_slow(peer_, *operation);
            operation->complete();
            return;
        }
        operation->requests = request_gets(*operation, unanswered.unknown);
    }
    if (!thread_->post([self = shared_from_this(), operation, unanswered = std::move(unanswered)] {
            self->start(operation);
            if (!unanswered.later.empty() && operation->registered) {
                self->read_files(unanswered.files, operation, unanswered.later);
            }
        })) {
        operation->fail(ErrorKind::server_lost, {peer_, ": the client is closed"});
        operation->complete();
    }
}

bool LocalLink::takes_files(std::uint64_t bytes) const {
    if (closed_ || bytes < least_in_file_) {
        return false;
    }
    int can = can_leave_memory_;
    if (can < 0) {
        can_leave_memory_ = can = can_leave_memory(socket_.fd()) ? 1 : 0;
    }
    return can == 1;
}

void LocalLink::cancel(const std::shared_ptr<Operation>& operation) {
    post_or_wait(*thread_, [self = shared_from_this(), operation] {
        if (operation->registered) {
            operation->fail(ErrorKind::cancelled, {self->peer_, ": the request was cancelled"});
            self->finish(operation);
        }
    });
}

std::function<void()> LocalLink::tell_held() {
    return [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
            self->thread_->post([self] {
                if (!self->closed_) {
                    self->send({.kind = FrameKind::held});
                }
            });
        }
    };
}

void LocalLink::close() {
    post_or_wait(*thread_, [self = shared_from_this()] {
        self->end(ErrorKind::server_lost, "the connection was closed", false);
    });
}

// ---- the thread: how it begins and ends ----

void LocalLink::begin() {
    thread_->watch(socket_.fd(), [this] { move(); });
    report(log::info, log::EventKind::connected, peer_, "local");
}

void LocalLink::end(ErrorKind kind, std::string_view message, bool lost) {
    if (closed_.exchange(true)) {
        return;
    }
    report(lost ? log::warning : log::info, lost ? log::EventKind::lost : log::EventKind::closed,
           peer_, message, in_flight_.registered());
    try {
        cause_ = message;
    } catch (const std::bad_alloc&) {  // it is just closed then
    }
    thread_->unwatch(socket_.fd());
    socket_.end();
    values_.clear();
    uploaded_.clear();
    visible_.clear();
    in_flight_.for_each([&](const Pointer& operation) {
        operation->fail(kind, {peer_, ": ", message});
        finish(operation);
    });
    due_(TimePoint::min());
}

TimePoint LocalLink::tick(TimePoint now) {
    for (const auto& [id, reads] : reads_) {
        if (reads->moved()) {
            reads->operation()->moved(now);
        }
    }
    const auto [late, next] = in_flight_.late(now);
    for (const auto& operation : late) {
        operation->fail(ErrorKind::timeout, {peer_, ": ", operation->late_text()});
        finish(operation);
    }
    const TimePoint hangs_up = leaving_.due(in_flight_.empty() && !closed_, now);
    if (hangs_up <= now) {
        end(ErrorKind::server_lost, kLeft, false);
    }
    return std::min({next, hangs_up, leak_stuck(now, kLocalReleaseTimeout)});
}

// Returns when the next ones may be stuck.
TimePoint LocalLink::leak_stuck(TimePoint now, Clock::duration timeout) {
    const auto [stuck, next] = in_flight_.unreleased(now, timeout);
    for (const auto& operation : stuck) {
        in_flight_.leak(operation, peer_, "a file is still being read");
    }
    return next;
}

void LocalLink::abandon() { leak_stuck(Clock::now(), Clock::duration(0)); }

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
            end(ErrorKind::server_lost, visible_.lost_pins() ? kTakenBack : "the server is gone",
                true);
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
                        {peer_, ": ", cause_.empty() ? "the connection is closed" : cause_});
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

void LocalLink::begin(const Pointer& operation) {
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
    send({.kind = FrameKind::request,
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
    OutMessage message{.kind = FrameKind::file, .header = raw(header) + item.key};
    message.descriptors.push_back(std::move(operation->file));
    operation->went_as_file = true;
    step();
    send(std::move(message));
    step();
}

void LocalLink::pump() {
    if (pumping_) {
        return;
    }
    struct Pumping {
        explicit Pumping(bool& flag) : flag(flag) { flag = true; }
        ~Pumping() { flag = false; }  // also where there is no memory left for an error
        bool& flag;
    } pumping(pumping_);
    while (!closed_ && !values_.empty()) {
        const Value next = values_.front();
        Item& item = next.operation->items[next.item];
        if (!next.operation->registered || item.done) {
            values_.pop_front();  // failed, or refused by the server, meanwhile
            continue;
        }
        const bool begins = item.next == 0;
        if (begins && unanswered_ >= wire::kMaxUnanswered) {
            break;
        }
        try {
            if (!send_segment(next.operation, item, next.item)) {
                break;
            }
            if (begins) {  // until now it has only waited for others
                next.operation->moved(Clock::now());
                ++next.operation->unanswered;
                ++unanswered_;
            }
        } catch (const std::exception& error) {
            next.operation->fail(error, {peer_, ": sending '", item.key, "': "});
            finish(next.operation);
            continue;
        }
        if (item.next >= item.memory->size()) {
            values_.pop_front();
        }
    }
}

// False where there is no room for it yet.
bool LocalLink::send_segment(const Pointer& operation, Item& item, std::uint32_t index) {
    const Memory& memory = *item.memory;
    local::LocalValueHeader header{};
    header.value.token = token_;
    header.value.request = operation->id;
    header.value.item = index;
    header.value.if_absent = operation->kind == Operation::Kind::set_if_absent;
    header.value.total = memory.size();
    header.value.segment = local::kUploadSegmentBytes;
    header.value.offset = item.next;
    header.value.length = std::min(header.value.segment, header.value.total - header.value.offset);
    header.place = local::kInBody;
    OutMessage message{.kind = FrameKind::value};
    std::byte* target = nullptr;
    if (header.value.total <= local::kInlineBytes) {
        message.body.resize(header.value.length);
        target = reinterpret_cast<std::byte*>(message.body.data());
    } else {
        if (upload_ == nullptr) {
            auto upload = std::make_unique<Upload>();
            OutMessage shared{.kind = FrameKind::upload};
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
    }
    try {
        if (header.place != local::kInBody) {
            uploaded_.emplace(header.place, operation);
        }
        std::vector<ucp_dt_iov_t> pieces;
        memory.pieces(header.value.offset, header.value.length, pieces);
        step();
        Copier(pieces).gather(0, target, header.value.length, Write::cached);
        step();
        message.header = raw(header) + item.key;
        send(std::move(message));
    } catch (...) {  // it has not been sent, so nobody gives its room back
        if (header.place != local::kInBody) {
            uploaded_.erase(header.place);
            upload_->give(header.place, header.value.length);
        }
        throw;
    }
    item.next += header.value.length;
    return true;
}

// ---- what comes ----

std::optional<std::vector<ucp_dt_iov_t>> LocalLink::place(FrameKind kind, std::string_view bytes,
                                                          std::uint64_t body_bytes) {
    if (kind != FrameKind::reply) {
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
    in_flight_.moved(*operation);
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
        case FrameKind::reply:
            return on_reply(message);
        case FrameKind::room: {
            const auto room =
                wire::read_header<local::RoomHeader>(message.header.data(), message.header.size());
            if (!room || upload_ == nullptr) {
                throw Error(ErrorKind::protocol, "room that was not taken");
            }
            upload_->give(room->place, room->length);
            if (const auto node = uploaded_.extract(room->place); !node.empty()) {
                in_flight_.moved(*node.mapped());
            }
            return pump();
        }
        case FrameKind::files: {
            const auto files =
                wire::read_header<local::FilesHeader>(message.header.data(), message.header.size());
            if (!files) {
                throw Error(ErrorKind::protocol, "no word of which files are taken");
            }
            least_in_file_ = files->least_bytes;
            return;
        }
        default:
            return visible_.take(message, tell_held());
    }
}

void LocalLink::on_reply(const InMessage& message) {
    if (filling_) {
        const auto [operation, header] = *std::exchange(filling_, std::nullopt);
        Item& item = operation->items[header.item];
        in_flight_.moved(*operation);
        item.received += header.length;
        if (item.received == item.size && !item.done) {
            item_done(operation, item);
        }
        return;
    }
    const auto header =
        wire::read_header<wire::ReplyHeader>(message.header.data(), message.header.size());
    if (header->status == wire::Status::leaving) {
        leaving_.begin();
        due_(TimePoint::min());
        return;
    }
    const auto operation = in_flight_.find(header->request);
    if (operation == nullptr) {
        return;  // it has ended
    }
    in_flight_.moved(*operation);
    if (header->status == wire::Status::going_on) {
        return;
    }
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
    if (visible_.answer_shown(peer_, *operation, number)) {
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

// ---- what other threads read from files ----

void LocalLink::read_files(const std::shared_ptr<const VisibleFiles>& files,
                           const Pointer& operation, const std::vector<std::uint32_t>& items) {
    try {
        const auto reads = std::make_shared<FileReads>(files, operation, items);
        std::function<void()> on_end = [self = shared_from_this(), reads] {
            // Once the thread has stopped, the operation was abandoned.
            self->thread_->post([self, reads] { self->on_read(reads); });
        };
        reads_.emplace(operation->id, reads);
        ++operation->active;
        reads->start(pool_, std::move(on_end));
    } catch (const std::exception& error) {
        operation->fail(error, {peer_, ": reading '", operation->items[items[0]].key, "': "});
        finish(operation);
    }
}

void LocalLink::on_read(const std::shared_ptr<FileReads>& reads) {
    const Pointer& operation = reads->operation();
    reads_.erase(operation->id);
    --operation->active;
    if (!operation->registered) {
        in_flight_.released(operation);
        due_(TimePoint::min());
        return;
    }
    operation->moved(Clock::now());
    try {
        const auto noted = reads->note(peer_);
        for (Outgoing& outgoing : request_gets(*operation, noted.unknown)) {
            outgoing.header.flags = wire::kSendBytes;
            send_request(*operation, std::move(outgoing));
        }
        for (const std::uint32_t item : noted.done) {
            item_done(operation, operation->items[item]);
        }
    } catch (const std::exception& error) {
        operation->fail(error, {});
        finish(operation);
    }
}

void LocalLink::item_done(const Pointer& operation, Item& item) {
    const bool answered = operation->unanswered > 0;
    if (answered) {
        --operation->unanswered;
        --unanswered_;
    }
    if (operation->item_done(item)) {
        finish(operation);
    } else if (answered) {
        pump();
    }
}

void LocalLink::finish(const Pointer& operation) {
    if (filling_ && filling_->operation == operation) {
        filling_.reset();
        socket_.redirect();
    }
    if (const auto found = reads_.find(operation->id); found != reads_.end()) {
        found->second->stop();
        due_(Clock::now() + kLocalReleaseTimeout);
    }
    if (operation->failed() && !closed_) {
        try {
            send_request(*operation, {{{}, 0, wire::Op::abandon, 0, 0, 0}, {}});
        } catch (const std::exception&) {  // for want of memory: what comes of it is dropped
        }
    }
    if (!operation->failed()) {
        report_slow(peer_, *operation);
    }
    in_flight_.end(operation);
    unanswered_ -= std::exchange(operation->unanswered, 0);
    pump();
    if (leaving_.begun()) {
        due_(TimePoint::min());
    }
}

}  // namespace ucxstore

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

namespace ucxstore::local_client {

namespace {

// How long a read of a file that is not wanted any more may wait for its disk. Then the caller gets
// its failure, and the memory is leaked: never freed while the kernel may write to it.
constexpr auto kLocalReleaseTimeout = std::chrono::seconds(10);

constexpr const char* kTakenBack =
    "the server has hung up, and has taken back memory that this process held too much of: views "
    "and "
    "mapped results of it may change";

}  // namespace

LocalLink::LocalLink(std::shared_ptr<threads::EventThread> thread,
                     std::shared_ptr<threads::WorkerPool> pool, base::Fd socket,
                     const protocol::Token& token, std::string peer,
                     std::function<void(base::TimePoint)> due)
    : StreamLink(std::move(thread), std::move(socket), token, std::move(peer), std::move(due)),
      pool_(std::move(pool)) {}

// ---- any thread ----

void LocalLink::submit(const std::shared_ptr<client::Operation>& operation) {
    VisibleStorage::Unanswered unanswered;
    if (operation->kind == client::Operation::Kind::get && !operation->items.empty()) {
        operation->large = operation->memory_bytes() >= client::Operation::kLargeBytes;
        if (const auto& last = operation->items.back().memory; operation->large && last) {
            operation->new_pages = memory::NewPages(last->end());
        }
        unanswered = visible_.answer(peer(), *operation);
        if (unanswered.empty()) {
            client::report_slow(peer(), *operation);
            operation->complete();
            return;
        }
        operation->requests = client::request_gets(*operation, unanswered.unknown);
    }
    start(operation, [self = self(), operation, unanswered = std::move(unanswered)] {
        if (operation->registered && !unanswered.later.empty()) {
            self->read_files(unanswered.files, operation, unanswered.later);
        }
    });
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

std::function<void()> LocalLink::tell_held() {
    return [weak = std::weak_ptr(self())] {
        if (const auto self = weak.lock()) {
            self->thread_->post([self] {
                if (!self->closed_) {
                    self->send({.kind = stream::FrameKind::held});
                }
            });
        }
    };
}

// ---- the thread: how it ends ----

void LocalLink::clear() {
    uploaded_.clear();
    visible_.clear();
}

const char* LocalLink::why_gone() const {
    return visible_.lost_pins() ? kTakenBack : StreamLink::why_gone();
}

base::TimePoint LocalLink::tick(base::TimePoint now) {
    for (const auto& [id, reads] : reads_) {
        if (reads->moved()) {
            reads->operation()->moved(now);
        }
    }
    return std::min({StreamLink::tick(now), leak_stuck(now, kLocalReleaseTimeout)});
}

// Returns when the next ones may be stuck.
base::TimePoint LocalLink::leak_stuck(base::TimePoint now, base::Clock::duration timeout) {
    const auto [stuck, next] = conversation_.unreleased(now, timeout);
    conversation_.leak(stuck, "a file is still being read");
    return next;
}

void LocalLink::abandon() { leak_stuck(base::Clock::now(), base::Clock::duration(0)); }

// ---- what is sent ----

void LocalLink::ask_for_bytes(const client::Operation& operation,
                              std::span<const std::uint32_t> items) {
    for (client::Outgoing& outgoing : client::request_gets(operation, items)) {
        outgoing.header.flags |= protocol::kSendBytes;
        conversation_.request(operation, std::move(outgoing));
    }
}

bool LocalLink::send_file(const Pointer& operation) {
    if (!operation->file) {
        return false;
    }
    const client::Item& item = operation->items.front();
    const protocol::ValueHeader header =
        conversation_.value_header(*operation, 0, item.memory->size());
    stream::OutMessage message{.kind = stream::FrameKind::file,
                               .header = stream::raw(header) + item.key};
    message.descriptors.push_back(std::move(operation->file));
    operation->went_as_file = true;
    base::step();
    send(std::move(message));
    base::step();
    return true;
}

bool LocalLink::send_segment(const Pointer& operation, client::Item& item, std::uint32_t index) {
    if (socket_.has_more()) {
        return false;  // the turn is over, or the server is behind
    }
    const client::Memory& memory = *item.memory;
    local::LocalValueHeader header{
        conversation_.value_header(*operation, index, local::kUploadSegmentBytes), local::kInBody};
    stream::OutMessage message{.kind = stream::FrameKind::value};
    std::byte* target = nullptr;
    if (header.value.total <= local::kInlineBytes) {
        message.body.resize(header.value.length);
        target = reinterpret_cast<std::byte*>(message.body.data());
    } else {
        if (upload_ == nullptr) {
            auto upload = std::make_unique<Upload>();
            stream::OutMessage shared{.kind = stream::FrameKind::upload};
            shared.descriptors.emplace_back(fcntl(upload->descriptor(), F_DUPFD_CLOEXEC, 0));
            if (!shared.descriptors.back()) {
                base::throw_errno("a descriptor for the server", base::ErrorKind::resource);
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
        base::step();
        memory::Copier(pieces).gather(0, target, header.value.length, memory::Write::cached);
        base::step();
        message.header = stream::raw(header) + item.key;
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

void LocalLink::take_other(stream::InMessage message) {
    switch (message.kind) {
        case stream::FrameKind::room: {
            const auto room = protocol::read_header<local::RoomHeader>(message.header.data(),
                                                                       message.header.size());
            if (!room || upload_ == nullptr) {
                throw base::Error(base::ErrorKind::protocol, "room that was not taken");
            }
            upload_->give(room->place, room->length);
            if (const auto node = uploaded_.extract(room->place); !node.empty()) {
                conversation_.moved(*node.mapped());
            }
            return pump();
        }
        case stream::FrameKind::files: {
            const auto files = protocol::read_header<local::FilesHeader>(message.header.data(),
                                                                         message.header.size());
            if (!files) {
                throw base::Error(base::ErrorKind::protocol, "no word of which files are taken");
            }
            least_in_file_ = files->least_bytes;
            return;
        }
        default:
            return visible_.take(message, tell_held());
    }
}

bool LocalLink::take_reply(const Pointer& operation, const protocol::ReplyHeader& header) {
    if (header.status == protocol::Status::shown) {
        on_shown(operation, header.item);
    } else if (header.status == protocol::Status::unmoved) {
        on_unmoved(operation, header.item);
    } else {
        return false;
    }
    return true;
}

void LocalLink::on_shown(const Pointer& operation, std::uint32_t number) {
    if (operation->kind != client::Operation::Kind::get || number >= operation->items.size() ||
        operation->items[number].done) {
        throw base::Error(base::ErrorKind::protocol, "'shown' for what was not wanted");
    }
    if (visible_.answer_shown(peer(), *operation, number)) {
        conversation_.item_done(operation, operation->items[number]);
    } else {  // it has been replaced or removed meanwhile
        ask_for_bytes(*operation, {{number}});
    }
}

void LocalLink::on_unmoved(const Pointer& operation, std::uint32_t number) {
    if (!std::exchange(operation->went_as_file, false) || number != 0) {
        throw base::Error(base::ErrorKind::protocol, "'unmoved' for what came in no file");
    }
    conversation_.queue_values(operation);
}

// ---- what other threads read from files ----

void LocalLink::read_files(const std::shared_ptr<const VisibleFiles>& files,
                           const Pointer& operation, const std::vector<std::uint32_t>& items) {
    try {
        const auto reads = std::make_shared<FileReads>(files, operation, items);
        std::function<void()> on_end = [self = self(), reads] {
            // Once the thread has stopped, the operation was abandoned.
            self->thread_->post([self, reads] { self->on_read(reads); });
        };
        reads_.emplace(operation->id, reads);
        ++operation->active;
        reads->start(pool_, std::move(on_end));
    } catch (const std::exception& error) {
        operation->fail(error, {peer(), ": reading '", operation->items[items[0]].key, "': "});
        conversation_.finish(operation);
    }
}

void LocalLink::on_read(const std::shared_ptr<FileReads>& reads) {
    const Pointer& operation = reads->operation();
    reads_.erase(operation->id);
    --operation->active;
    if (!operation->registered) {
        conversation_.released(operation);
        due_(base::TimePoint::min());
        return;
    }
    operation->moved(base::Clock::now());
    try {
        const auto noted = reads->note(peer());
        ask_for_bytes(*operation, noted.unknown);
        for (const std::uint32_t item : noted.done) {
            conversation_.item_done(operation, operation->items[item]);
        }
    } catch (const std::exception& error) {
        operation->fail(error, {});
        conversation_.finish(operation);
    }
}

void LocalLink::stop(const client::Operation& operation) {
    StreamLink::stop(operation);
    if (const auto found = reads_.find(operation.id); found != reads_.end()) {
        found->second->stop();
        due_(base::Clock::now() + kLocalReleaseTimeout);
    }
}

}  // namespace ucxstore::local_client

#include "local_server/local_session.hpp"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "protocol/keys.hpp"
#include "stream/closing.hpp"

namespace ucxstore::local_server {

namespace {

// What a client has passed and the server does not use: it is closed apart, on the client's
// account.
void refuse_passed(const std::shared_ptr<sessions::Account>& account, base::Fd fd) {
    std::shared_ptr<const void> charge;
    try {
        charge =
            std::make_shared<sessions::Hold>(account->hold_anyway(sessions::Held::descriptors, 1));
    } catch (const std::exception&) {  // no memory: it is not counted
    }
    stream::close_apart(std::move(fd), std::move(charge));
}

// How many descriptors a message of this kind has.
std::size_t descriptors_of(stream::FrameKind kind) {
    return kind == stream::FrameKind::upload || kind == stream::FrameKind::file ? 1 : 0;
}

}  // namespace

// ---- what it pins ----

class LocalSession::PinHolder : public shared::Holder {
  public:
    PinHolder(std::weak_ptr<threads::EventThread> thread, std::weak_ptr<LocalSession> session,
              std::shared_ptr<sessions::Account> account, sessions::Hold table)
        : thread_(std::move(thread)),
          session_(std::move(session)),
          account_(std::move(account)),
          table_(std::move(table)) {}

    const std::string& origin() const override { return account_->origin(); }
    void charge(std::uint64_t bytes) override {
        const base::Lock lock(mutex_);
        if (bytes > pinned_.amount()) {
            pinned_ = account_->hold_anyway(sessions::Held::pinned_bytes, bytes);
        } else {
            pinned_.shrink(bytes);
        }
    }
    void lose(const std::string& why) override {
        if (const auto thread = thread_.lock()) {
            thread->post([weak = session_, why] {
                const auto self = weak.lock();
                if (self != nullptr && !self->closed()) {
                    self->client_->report(base::log::warning, base::log::EventKind::refused, why);
                    self->client_->doom();
                }
            });
        }
    }

  private:
    const std::weak_ptr<threads::EventThread> thread_;
    const std::weak_ptr<LocalSession> session_;
    const std::shared_ptr<sessions::Account> account_;
    const sessions::Hold table_;
    base::Mutex mutex_;
    sessions::Hold pinned_ GUARDED_BY(mutex_);
};

std::shared_ptr<shared::Holder> LocalSession::make_holder() {
    auto table = client_->account()->hold(sessions::Held::pin_tables, 1);
    if (!table) {
        throw base::Error(base::ErrorKind::resource, "no room for another table of pins");
    }
    return std::make_shared<PinHolder>(thread_, self(), client_->account(), std::move(*table));
}

// ---- the session ----

LocalSession::LocalSession(Parts parts, int life)
    : StreamSession(parts, {}, "local",
                    [](sessions::ClientRecord& client) {
                        return [account = client.account()](base::Fd fd) {
                            refuse_passed(account, std::move(fd));
                        };
                    }),
      takes_files_(parts.service.storages.local != nullptr &&
                   parts.service.storages.local->shelf() != nullptr),
      showings_(
          parts.service.storages, life, client_->place(), [this] { return make_holder(); },
          client_->seen_by()) {
    if (client_->bounds().may_see("")) {
        shown_root_ =
            ShownRoot::make(parts.service.storages, life, socket_.fd(), client_->seen_by());
    }
}

void LocalSession::clear() {
    showings_.close();
    shown_root_.reset();
}

bool LocalSession::show(const sessions::PendingGet& get) {
    if (get.send_bytes() || !client_->bounds().may_see(protocol::folder_of_space(get.key()))) {
        return false;
    }
    std::vector<stream::OutMessage> messages;
    const auto value = showings_.show(get, on_drop(), messages);
    for (stream::OutMessage& message : messages) {
        send_other(std::move(message));
    }
    if (value == nullptr) {
        return false;
    }
    refuse(get, {protocol::Status::shown, value->size(), value->version()});
    return true;
}

void LocalSession::note_seen() {
    const std::uint64_t seen =
        showings_.seen() + (shown_root_ == nullptr ? 0 : shown_root_->seen());
    if (seen != std::exchange(seen_, seen)) {
        client_->moved();
    }
}

bool LocalSession::may_yield() {
    note_seen();
    return !busy() && !showings_.pinned();
}

void LocalSession::drop_arena(std::uint64_t shelf, std::uint32_t number) {
    if (closed()) {
        return;
    }
    std::vector<stream::OutMessage> messages;
    showings_.drop(shelf, number, messages);
    for (stream::OutMessage& message : messages) {
        send_other(std::move(message));
    }
}

Showings::OnDrop LocalSession::on_drop() {
    return [on = std::weak_ptr(thread_), weak = std::weak_ptr(self())](std::uint64_t shelf,
                                                                       std::uint32_t arena) {
        if (const auto thread = on.lock()) {
            thread->post([weak, shelf, arena] {
                if (const auto self = weak.lock()) {
                    self->drop_arena(shelf, arena);
                }
            });
        }
    };
}

std::optional<std::vector<ucp_dt_iov_t>> LocalSession::place(stream::FrameKind kind,
                                                             std::string_view,
                                                             std::uint64_t body_bytes) {
    const std::uint64_t most = kind == stream::FrameKind::request ? protocol::kMaxRequestBytes
                               : kind == stream::FrameKind::value ? local::kInlineBytes
                                                                  : 0;
    if (body_bytes > most) {
        throw base::Error(base::ErrorKind::protocol, "a message that is too large");
    }
    return std::nullopt;
}

void LocalSession::take(stream::InMessage message) {
    struct Unused {
        ~Unused() {
            for (base::Fd& fd : message.descriptors) {
                if (fd) {
                    refuse_passed(account, std::move(fd));
                }
            }
        }
        stream::InMessage& message;
        const std::shared_ptr<sessions::Account>& account;
    } const unused{message, client_->account()};
    if (message.descriptors.size() != descriptors_of(message.kind)) {
        throw base::Error(base::ErrorKind::protocol,
                          "a message with descriptors that it does not take");
    }
    // Not before the client's first message: until then, it reads the socket in Python.
    if (shown_root_ != nullptr && !std::exchange(root_sent_, true)) {
        send_other(shown_root_->take_message());
    }
    StreamSession::take(std::move(message));
}

void LocalSession::take_other(stream::InMessage& message) {
    switch (message.kind) {
        case stream::FrameKind::value:
            return on_value(message);
        case stream::FrameKind::file:
            return on_file(message);
        case stream::FrameKind::upload:
            if (upload_) {
                throw base::Error(base::ErrorKind::protocol, "a second upload");
            }
            upload_.emplace(std::move(message.descriptors[0]));
            return;
        case stream::FrameKind::held:
            // However often it says so: the look is due once.
            showings_.sweep_soon();
            return;
        default:
            StreamSession::take_other(message);
    }
}

void LocalSession::on_file(stream::InMessage& message) {
    if (message.header.size() > sizeof(protocol::ValueHeader) + protocol::kMaxKeyBytes) {
        throw base::Error(base::ErrorKind::protocol, "a file without its key");
    }
    if (!takes_files_) {
        send_other({.kind = stream::FrameKind::files,
                    .header = stream::raw(local::FilesHeader{local::kNoFiles})});
    }
    session_.dispatch<protocol::ValueHeader>(
        message.header.data(), message.header.size(), [&](const protocol::ValueHeader& header) {
            session_.on_file(header, message.header.substr(sizeof(header)),
                             std::move(message.descriptors[0]));
        });
}

void LocalSession::on_value(const stream::InMessage& message) {
    const auto header = protocol::read_header<local::LocalValueHeader>(message.header.data(),
                                                                       message.header.size());
    if (!header || message.header.size() - sizeof(*header) > protocol::kMaxKeyBytes) {
        throw base::Error(base::ErrorKind::protocol, "a value without a header");
    }
    session_.dispatch<protocol::ValueHeader>(
        message.header.data(), sizeof(protocol::ValueHeader),
        [&](const protocol::ValueHeader& value) {
            const std::string key = message.header.substr(sizeof(local::LocalValueHeader));
            if (header->place == local::kInBody) {
                if (message.body.size() != value.length) {
                    throw base::Error(base::ErrorKind::protocol,
                                      "a value that is not as long as it says");
                }
                session_.on_value(value, key,
                                  {std::as_bytes(std::span(message.body)), nullptr, {}});
                return;
            }
            if (!upload_ || header->place > upload_->size() ||
                value.length > upload_->size() - header->place || value.length == 0) {
                throw base::Error(base::ErrorKind::protocol, "a value outside of the upload");
            }
            segment_ = new local::RoomHeader{header->place, value.length};
            bool kept = false;
            try {
                kept = session_.on_value(value, key, {{}, segment_, {}});
            } catch (...) {
                drop(segment_);
                throw;
            }
            if (!kept) {
                drop(segment_);
            }
            segment_ = nullptr;
        });
}

// ---- what comes in the upload ----

void LocalSession::receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                           memory::Write write) {
    const auto* const segment = static_cast<const local::RoomHeader*>(parcel);
    // Whatever the client writes there meanwhile, it is only its own value that it changes.
    base::step();
    if (std::byte* const memory = sink->memory(); memory != nullptr) {
        upload_->copy(segment->place, {memory, length}, write);
    } else {
        upload_->pass(segment->place, length,
                      [&](std::uint64_t offset, std::span<const std::byte> bytes) {
                          sink->take(offset, bytes);
                      });
    }
    base::step();
    drop(parcel);
    sink->done(true);
}

void LocalSession::drop(Parcel parcel) {
    const std::unique_ptr<local::RoomHeader> segment(static_cast<local::RoomHeader*>(parcel));
    if (segment == nullptr) {
        return;  // it has been received meanwhile
    }
    if (segment_ == segment.get()) {
        segment_ = nullptr;
    }
    try {
        send_other({.kind = stream::FrameKind::room, .header = stream::raw(*segment)});
    } catch (const std::exception&) {  // for want of memory: a value may go in a destructor
        client_->doom();
    }
}

}  // namespace ucxstore::local_server

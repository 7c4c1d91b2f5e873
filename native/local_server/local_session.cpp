#include "local_server/local_session.hpp"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "local/closing.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::local_server {

class LocalSession::LocalSending : public sessions::Sending {
  public:
    LocalSending(LocalSession& session, const protocol::Token& token,
                 std::shared_ptr<sessions::ClientRecord> client)
        : sessions::Sending(token, std::move(client)), session_(session) {}

    // Below that, the kernel takes longer for a piece than we for a copy of it.
    std::uint64_t least_piece() const override { return 512; }

    // The end of the socket is noted as it is read.
    bool failed() const override { return false; }

    bool catch_up() override { return session_.catch_up(); }

    // A message that is no reply. A client that takes none of these has no room for more of what
    // they answer, either.
    void send_other(local::OutMessage message) {
        const std::uint64_t bytes = message.header.size() + message.body.size();
        const Amount amount = begin_other(bytes);
        message.sent = [this, amount] { other_sent(amount); };
        try {
            session_.send(std::move(message));
        } catch (const std::exception&) {
            other_sent(amount);
            throw;
        }
    }

    bool show(const sessions::PendingGet& get) override {
        if (get.send_bytes() ||
            !session_.client_->bounds().may_see(protocol::folder_of_space(get.key()))) {
            return false;
        }
        std::vector<local::OutMessage> messages;
        const auto value = session_.showings_.show(get, session_.on_drop(), messages);
        for (local::OutMessage& message : messages) {
            send_other(std::move(message));
        }
        if (value == nullptr) {
            return false;
        }
        refuse(get.id(), {protocol::Status::shown, value->size(), value->version()}, get.timed());
        return true;
    }

  private:
    bool send(Message message) override {
        if (session_.socket_.ended()) {
            return false;
        }
        const Amount amount = message.amount();
        // The socket has the message until all of it is with the kernel, and so has the value.
        session_.send(
            {.kind = local::FrameKind::reply,
             .header = local::raw(message.header),
             .pieces = std::move(message.pieces),
             .body = std::move(message.payload),
             .descriptors = {},
             .sent = [this, amount, value = std::move(message.value)] { sent(amount, true); }});
        return true;
    }
    // Of what waits in the socket nothing is sent any more.
    void end() override {
        session_.socket_.end();
        forget_in_flight();
    }

    LocalSession& session_;
};

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
    local::close_apart(std::move(fd), std::move(charge));
}

// How many descriptors a message of this kind has.
std::size_t descriptors_of(local::FrameKind kind) {
    return kind == local::FrameKind::upload || kind == local::FrameKind::file ? 1 : 0;
}

bool has_hung_up(int fd) {
    pollfd events{.fd = fd, .events = 0, .revents = 0};
    return poll(&events, 1, 0) > 0;
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
                if (self != nullptr && !self->closed_) {
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
    return std::make_shared<PinHolder>(thread_, weak_from_this(), client_->account(),
                                       std::move(*table));
}

// ---- what comes in the upload ----

sessions::Receiver::Parcel LocalSession::UploadReceiver::begin(const local::RoomHeader& segment) {
    current_ = new local::RoomHeader(segment);
    return current_;
}

void LocalSession::UploadReceiver::settle(bool kept) {
    if (current_ != nullptr && !kept) {
        drop(current_);
    }
    current_ = nullptr;
}

void LocalSession::UploadReceiver::receive(Parcel parcel, std::unique_ptr<Sink> sink,
                                           std::uint64_t length, memory::Write write) {
    const auto* const segment = static_cast<const local::RoomHeader*>(parcel);
    // Whatever the client writes there meanwhile, it is only its own value that it changes.
    const SeenUpload& upload = *session_.upload_;
    base::step();
    if (std::byte* const memory = sink->memory(); memory != nullptr) {
        upload.copy(segment->place, {memory, length}, write);
    } else {
        upload.pass(segment->place, length,
                    [&](std::uint64_t offset, std::span<const std::byte> bytes) {
                        sink->take(offset, bytes);
                    });
    }
    base::step();
    drop(parcel);
    sink->done(Sink::End::arrived);
}

void LocalSession::UploadReceiver::drop(Parcel parcel) {
    const std::unique_ptr<local::RoomHeader> segment(static_cast<local::RoomHeader*>(parcel));
    if (current_ == segment.get()) {
        current_ = nullptr;
    }
    try {
        session_.send_other({.kind = local::FrameKind::room, .header = local::raw(*segment)});
    } catch (const std::exception&) {  // for want of memory: a value may go in a destructor
        session_.client_->doom();
    }
}

// ---- the session ----

// NOLINTNEXTLINE(readability-function-size): what a session is made of
LocalSession::LocalSession(std::shared_ptr<threads::EventThread> thread, sessions::Turns& turns,
                           int life, base::Fd socket, const sessions::Service& service,
                           const protocol::Token& token, const sessions::Admitted& client,
                           std::function<void()> look)
    : thread_(std::move(thread)),
      client_(std::make_shared<sessions::ClientRecord>(service.counters,
                                                       service.places->take(client.origin), client,
                                                       service.ledger->open(client.origin))),
      look_(std::move(look)),
      seat_(turns, client_->account(), [this] { return move(); }),
      takes_files_(service.storages.local != nullptr && service.storages.local->shelf() != nullptr),
      socket_(
          std::move(socket), *this,
          [account = client_->account()](base::Fd fd) { refuse_passed(account, std::move(fd)); }),
      showings_(
          service.storages, life, client_->place(), [this] { return make_holder(); },
          client_->seen_by()),
      receiver_(*this),
      sending_(std::make_shared<LocalSending>(*this, token, client_)),
      session_(service, thread_, token, client_, sending_, receiver_, seat_) {
    thread_->watch(socket_.fd(), [this] { on_event(); });
    client_->set_lanes({"local"});
    if (client_->bounds().may_see("")) {
        shown_root_ = ShownRoot::make(service.storages, life, socket_.fd(), client_->seen_by());
    }
}

LocalSession::~LocalSession() { close(); }

void LocalSession::on_event() {
    // Where nothing is read, the end of the socket is not, either.
    if (!reads_ && has_hung_up(socket_.fd())) {
        client_->doom();
    }
    seat_.want();
}

bool LocalSession::move() {
    if (closed_) {
        return false;
    }
    bool more = false;
    try {
        waits_ = socket_.flush();
        session_.work();
        more = session_.reads() && socket_.read() && session_.reads() && !client_->doomed();
        if (socket_.ended()) {
            client_->doom();
        }
        listen();
    } catch (const std::exception& error) {
        client_->report(base::log::warning, base::log::EventKind::refused, error.what());
        client_->doom();
    }
    look_();
    return !closed_ && (more || (socket_.has_more() && !waits_));
}

void LocalSession::listen() {
    const bool reads = session_.reads();
    if (!reads) {
        session_.pause();
    }
    if (reads != reads_ || waits_ != writes_) {
        thread_->watch_for(socket_.fd(), reads, waits_);
        reads_ = reads;
        writes_ = waits_;
    }
}

bool LocalSession::catch_up() {
    if (closed_) {
        return false;
    }
    bool more = true;
    const base::TimePoint begun = base::Clock::now();
    seat_.work_until(begun + sessions::Turns::kTurn);
    try {
        more = socket_.read();
        if (socket_.ended()) {
            client_->doom();
        }
        listen();
    } catch (const std::exception& error) {
        client_->report(base::log::warning, base::log::EventKind::refused, error.what());
        client_->doom();
    }
    seat_.charge(base::Clock::now() - begun);
    return !more;
}

void LocalSession::send_other(local::OutMessage message) {
    if (!closed_ && !client_->doomed()) {
        session_.guard([&] { session_.check_taken(); });
        sending_->send_other(std::move(message));
    }
}

void LocalSession::send(local::OutMessage message) {
    if (closed_) {
        return;
    }
    const bool waited = socket_.has_more();
    waits_ = socket_.send(std::move(message));  // where that throws, nothing is sent
    if (waits_ && !writes_) {
        session_.guard([&] { listen(); });
    } else if (!waits_ && (waited || socket_.has_more())) {
        seat_.want();
    }
}

base::TimePoint LocalSession::tick(base::TimePoint now) {
    if (closed_) {
        return base::TimePoint::max();
    }
    const auto [over, due] = session_.look(now);
    if (over) {
        close();
    }
    return due;
}

void LocalSession::close() {
    if (std::exchange(closed_, true)) {
        return;
    }
    thread_->unwatch(socket_.fd());
    session_.close();
    showings_.close();
    shown_root_.reset();
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
    if (closed_) {
        return;
    }
    std::vector<local::OutMessage> messages;
    showings_.drop(shelf, number, messages);
    for (local::OutMessage& message : messages) {
        send_other(std::move(message));
    }
}

Showings::OnDrop LocalSession::on_drop() {
    return [on = std::weak_ptr(thread_), weak = weak_from_this()](std::uint64_t shelf,
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

std::optional<std::vector<ucp_dt_iov_t>> LocalSession::place(local::FrameKind kind,
                                                             std::string_view,
                                                             std::uint64_t body_bytes) {
    const std::uint64_t most = kind == local::FrameKind::request ? protocol::kMaxRequestBytes
                               : kind == local::FrameKind::value ? local::kInlineBytes
                                                                 : 0;
    if (body_bytes > most) {
        throw base::Error(base::ErrorKind::protocol, "a message that is too large");
    }
    return std::nullopt;
}

void LocalSession::take(local::InMessage message) {
    struct Unused {
        ~Unused() {
            for (base::Fd& fd : message.descriptors) {
                if (fd) {
                    refuse_passed(account, std::move(fd));
                }
            }
        }
        local::InMessage& message;
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
    switch (message.kind) {
        case local::FrameKind::request:
            return session_.dispatch<protocol::RequestHeader>(
                message.header.data(), message.header.size(),
                [&](const protocol::RequestHeader& header) {
                    session_.on_request(header, std::as_bytes(std::span(message.body)));
                });
        case local::FrameKind::value:
            return on_value(message);
        case local::FrameKind::file:
            return on_file(message);
        case local::FrameKind::upload:
            if (upload_) {
                throw base::Error(base::ErrorKind::protocol, "a second upload");
            }
            upload_.emplace(std::move(message.descriptors[0]));
            return;
        case local::FrameKind::held:
            // However often it says so: the look is due once.
            showings_.sweep_soon();
            return;
        default:
            throw base::Error(base::ErrorKind::protocol, "what no client sends");
    }
}

void LocalSession::on_file(local::InMessage& message) {
    if (message.header.size() > sizeof(protocol::ValueHeader) + protocol::kMaxKeyBytes) {
        throw base::Error(base::ErrorKind::protocol, "a file without its key");
    }
    if (!takes_files_) {
        send_other({.kind = local::FrameKind::files,
                    .header = local::raw(local::FilesHeader{local::kNoFiles})});
    }
    session_.dispatch<protocol::ValueHeader>(
        message.header.data(), message.header.size(), [&](const protocol::ValueHeader& header) {
            session_.on_file(header, message.header.substr(sizeof(header)),
                             std::move(message.descriptors[0]));
        });
}

void LocalSession::on_value(const local::InMessage& message) {
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
            bool kept = false;
            const sessions::Receiver::Parcel parcel =
                receiver_.begin({header->place, value.length});
            try {
                kept = session_.on_value(value, key, {{}, parcel, {}});
            } catch (...) {
                receiver_.settle(false);
                throw;
            }
            receiver_.settle(kept);
        });
}

}  // namespace ucxstore::local_server

#include "stream_server/stream_session.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "memory/crc32c.hpp"
#include "protocol/keys.hpp"
#include "protocol/sums.hpp"
#include "stream/frames.hpp"

namespace ucxstore::stream_server {

class StreamSession::StreamSending : public sessions::Sending {
  public:
    StreamSending(StreamSession& session, const protocol::Token& token,
                  std::shared_ptr<sessions::ClientRecord> client)
        : sessions::Sending(token, std::move(client)), session_(session) {}

    // Below that, the kernel takes longer for a piece than we for a copy of it.
    std::uint64_t least_piece() const override { return 512; }

    // The end of the socket is noted as it is read.
    bool failed() const override { return false; }

    bool catch_up() override { return session_.catch_up(); }

    // A client that takes none of these has no room for more of what they answer, either.
    void send_other(stream::OutMessage message) {
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

    bool show(const sessions::PendingGet& get) override { return session_.show(get); }

  private:
    bool send(Message message) override {
        if (session_.socket_.ended()) {
            return false;
        }
        const Amount amount = message.amount();
        std::string header = stream::raw(message.header);
        if (session_.checked_) {
            protocol::append_sums(header, sum_of(message));
        }
        // The socket has the message until all of it is with the kernel, and so has the value.
        session_.send(
            {.kind = stream::FrameKind::reply,
             .header = std::move(header),
             .pieces = std::move(message.pieces),
             .body = std::move(message.payload),
             .sent = [this, amount, value = std::move(message.value)] { sent(amount, true); }});
        return true;
    }
    // Of what waits in the socket nothing is sent any more.
    void end() override {
        session_.socket_.end();
        forget_in_flight();
    }

    StreamSession& session_;
};

namespace {

constexpr std::chrono::seconds kKept{1};  // memory between two bodies that need it

bool has_hung_up(int fd) {
    pollfd events{.fd = fd, .events = 0, .revents = 0};
    return poll(&events, 1, 0) > 0;
}

}  // namespace

StreamSession::StreamSession(Parts& parts, const stream::Protection& protection, const char* lane,
                             const MakeRefuse& refuse)
    : thread_(parts.thread),
      client_(std::make_shared<sessions::ClientRecord>(
          parts.service.counters, parts.service.places->take(parts.client.origin), parts.client,
          parts.service.ledger->open(parts.client.origin))),
      seat_(parts.turns, client_->account(), [this] { return move(); }),
      socket_(std::move(parts.socket), *this, refuse ? refuse(*client_) : nullptr, protection.keys),
      look_(parts.look),
      checked_(protection.checked && !protection.keys),
      sending_(std::make_shared<StreamSending>(*this, parts.token, client_)),
      session_(parts.service, thread_, parts.token, client_, sending_, *this, seat_) {
    thread_->watch(socket_.fd(), [this] { on_event(); });
    client_->set_lanes({lane}, protection.keys.has_value());
}

// ---- turns ----

void StreamSession::on_event() {
    // Where nothing is read, the end of the socket is not, either.
    if (!reads_ && has_hung_up(socket_.fd())) {
        client_->doom();
    }
    socket_.readable();
    seat_.want();
}

void StreamSession::fail(const std::exception& error) {
    client_->report(base::log::warning, base::log::EventKind::refused, error.what());
    client_->doom();
}

bool StreamSession::move() {
    if (closed_) {
        return false;
    }
    bool more = false;
    try {
        waits_ = socket_.flush();
        session_.work();
        more = reads() && socket_.read() && reads() && !client_->doomed();
        if (socket_.ended()) {
            client_->doom();
        }
        listen();
    } catch (const std::exception& error) {
        fail(error);
    }
    look_();
    return !closed_ && (more || (socket_.has_more() && !waits_));
}

void StreamSession::listen() {
    if (!session_.reads()) {
        session_.pause();
    }
    const bool reads = this->reads();
    if (reads != reads_ || waits_ != writes_) {
        thread_->watch_for(socket_.fd(), reads, waits_);
        reads_ = reads;
        writes_ = waits_;
    }
}

bool StreamSession::catch_up() {
    if (closed_) {
        return false;
    }
    bool more = true;
    const base::Clock::duration before = base::worked();
    seat_.work_until(base::Clock::now() + sessions::Turns::kTurn);
    try {
        socket_.readable();
        more = socket_.read();
        if (socket_.ended()) {
            client_->doom();
        }
        listen();
    } catch (const std::exception& error) {
        fail(error);
    }
    seat_.charge(base::worked() - before);
    return !more;
}

base::TimePoint StreamSession::tick(base::TimePoint now) {
    if (closed_) {
        return base::TimePoint::max();
    }
    socket_.look(now);
    if (socket_.ended()) {
        client_->doom();
    }
    const auto [over, due] = session_.look(now);
    if (over) {
        close();
    }
    if (now >= bounce_until_) {
        if (!body_.bounces) {
            bounce_ = {};
        }
        bounce_until_ = base::TimePoint::max();
    }
    return std::min({due, socket_.look_at(), bounce_until_});
}

void StreamSession::close() {
    if (std::exchange(closed_, true)) {
        return;
    }
    thread_->unwatch(socket_.fd());
    session_.close();
    end_body(false);
    clear();
}

// ---- what is sent ----

void StreamSession::send_other(stream::OutMessage message) {
    if (!closed_ && !client_->doomed()) {
        session_.guard([&] { session_.check_taken(); });
        sending_->send_other(std::move(message));
    }
}

void StreamSession::refuse(const sessions::PendingGet& get, const protocol::Refusal& refusal) {
    sending_->refuse(get.id(), refusal, get.timed());
}

void StreamSession::send(stream::OutMessage message) {
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

// ---- what comes ----

// Takes the sums off a header that has some. Throws Error(protocol) where it was changed.
protocol::Sum StreamSession::take_sums(std::string_view& header) const {
    if (!checked_) {
        return std::nullopt;
    }
    std::size_t size = header.size();
    const protocol::Sum sum = protocol::take_sums(header.data(), size);
    if (!sum) {
        throw base::Error(base::ErrorKind::protocol, "a message was changed on its way");
    }
    header = header.substr(0, size);
    return sum;
}

std::optional<std::vector<ucp_dt_iov_t>> StreamSession::place(stream::FrameKind kind,
                                                              std::string_view header,
                                                              std::uint64_t body_bytes) {
    const std::uint64_t most = kind == stream::FrameKind::request ? protocol::kMaxRequestBytes
                               : kind == stream::FrameKind::value ? stream::kStreamSegmentBytes
                                                                  : 0;
    if (body_bytes > most) {
        throw base::Error(base::ErrorKind::protocol, "a message that is too large");
    }
    if (kind == stream::FrameKind::value && body_bytes > protocol::kEagerBytes) {
        return place_value(header, body_bytes);
    }
    return std::nullopt;
}

std::vector<ucp_dt_iov_t> StreamSession::place_value(std::string_view bytes,
                                                     std::uint64_t body_bytes) {
    const protocol::Sum sum = take_sums(bytes);
    body_ = {.length = body_bytes, .sink = nullptr, .bounces = false, .is_coming = true};
    bool kept = false;
    session_.dispatch<protocol::ValueHeader>(
        bytes.data(), bytes.size(), [&](const protocol::ValueHeader& value) {
            const std::string key(bytes.substr(sizeof(value)));
            if (body_bytes != value.length || key.size() > protocol::kMaxKeyBytes) {
                throw base::Error(base::ErrorKind::protocol,
                                  "a value that is not as long as it says");
            }
            kept = session_.on_value(value, key, {{}, &body_, sum});
        });
    if (kept && body_.sink == nullptr) {  // until there is room for it
        socket_.await_target();
        return {};
    }
    return target();
}

// Where the body goes; nowhere else where its value was refused, or has no memory.
std::vector<ucp_dt_iov_t> StreamSession::target() {
    std::byte* memory = body_.sink == nullptr ? nullptr : body_.sink->memory();
    if (memory == nullptr) {
        body_.bounces = true;
        bounce_.resize(std::max<std::size_t>(bounce_.size(), body_.length));
        memory = bounce_.data();
    }
    return {{memory, body_.length}};
}

void StreamSession::receive(Parcel, std::unique_ptr<Sink> sink, std::uint64_t, memory::Write) {
    body_.sink = std::move(sink);
    if (socket_.awaits_target()) {
        socket_.give_target(target());
        seat_.want();
    }
}

void StreamSession::drop(Parcel) {
    if (socket_.awaits_target()) {
        socket_.redirect();
        seat_.want();
    }
}

void StreamSession::end_body(bool arrived) {
    Body body = std::exchange(body_, {});
    if (body.bounces) {
        bounce_until_ = base::Clock::now() + kKept;
    }
    if (body.sink == nullptr) {
        return;
    }
    if (arrived && body.bounces) {
        body.sink->take(0, std::span(bounce_).first(body.length));
    }
    body.sink->done(arrived);
}

void StreamSession::take(stream::InMessage message) {
    if (message.forged) {
        throw base::Error(base::ErrorKind::protocol, "a message was changed on its way");
    }
    if (body_.is_coming) {
        return end_body(true);
    }
    if (message.kind == stream::FrameKind::request) {
        return on_request(message);
    }
    take_other(message);
}

void StreamSession::on_request(const stream::InMessage& message) {
    std::string_view bytes = message.header;
    const protocol::Sum sum = take_sums(bytes);
    session_.dispatch<protocol::RequestHeader>(
        bytes.data(), bytes.size(), [&](const protocol::RequestHeader& header) {
            const auto body = std::as_bytes(std::span(message.body));
            if (sum && memory::crc32c(body) != *sum) {
                return session_.on_altered(header);
            }
            session_.on_request(header, body);
        });
}

void StreamSession::take_other(stream::InMessage& message) {
    if (message.kind != stream::FrameKind::value) {
        throw base::Error(base::ErrorKind::protocol, "a message that no client sends");
    }
    std::string_view bytes = message.header;
    const protocol::Sum sum = take_sums(bytes);
    session_.dispatch<protocol::ValueHeader>(
        bytes.data(), bytes.size(), [&](const protocol::ValueHeader& value) {
            const std::string key(bytes.substr(sizeof(value)));
            if (message.body.size() != value.length || key.size() > protocol::kMaxKeyBytes) {
                throw base::Error(base::ErrorKind::protocol,
                                  "a value that is not as long as it says");
            }
            session_.on_value(value, key, {std::as_bytes(std::span(message.body)), nullptr, sum});
        });
}

}  // namespace ucxstore::stream_server

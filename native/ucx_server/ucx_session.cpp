#include "ucx_server/ucx_session.hpp"

#include <algorithm>
#include <utility>

#include "base/ensure.hpp"
#include "base/status.hpp"
#include "memory/crc32c.hpp"
#include "protocol/keys.hpp"
#include "threads/trimming.hpp"
#include "ucx/request.hpp"

namespace ucxstore::ucx_server {
namespace {

// How long UCX may take to let go of memory once the endpoint was closed by force.
constexpr auto kReleaseTimeout = std::chrono::seconds(5);

// How long a client may take to send its first ping: it does so at once. Until then its session
// holds a worker, with its descriptors and shared memory.
constexpr auto kMeetTimeout = std::chrono::seconds(20);

}  // namespace

class UcxSession::UcxReceiver::Segment : public ucx::Request {
  public:
    explicit Segment(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}
    void take(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
        sink_->take(offset, bytes);
    }
    void completed(ucs_status_t status) override { sink_->done(status == UCS_OK); }

  private:
    const std::unique_ptr<Sink> sink_;
};

void UcxSession::UcxReceiver::receive(Parcel parcel, std::unique_ptr<Sink> sink,
                                      std::uint64_t length, memory::Write write) {
    std::byte* const memory = sink->memory();
    auto segment = std::make_unique<Segment>(std::move(sink));
    segment->write = write;
    if (memory != nullptr) {
        segment->pieces.push_back({memory, length});
    } else {
        segment->taken = length;
    }
    ucx::Request::receive(std::move(segment), worker_, parcel);
}

// NOLINTNEXTLINE(readability-function-size): what a session is made of
UcxSession::UcxSession(std::unique_ptr<ucx::Worker> worker, const sessions::Service& service,
                       std::weak_ptr<ucx::Progress> progress, sessions::Turns& turns,
                       const protocol::Token& token, const std::string& address,
                       const sessions::Admitted& client)
    : ucx::Peer(std::move(worker), kReleaseTimeout),
      address_(address),
      client_(std::make_shared<sessions::ClientRecord>(service.counters,
                                                       service.places->take(client.origin), client,
                                                       service.ledger->open(client.origin))),
      seat_(turns, client_->account(),
            [this] {
                session_.guard([&] { session_.work(); });
                return false;
            }),
      sending_(std::make_shared<UcxSending>(*worker_, token, client_)),
      receiver_(*worker_),
      session_(service, std::move(progress), token, client_, sending_, receiver_, seat_) {
    ucx::Endpoint::check_address(*worker_, address);
    worker_->on_message(static_cast<unsigned>(protocol::Message::request), &on_request_message,
                        this);
    worker_->on_message(static_cast<unsigned>(protocol::Message::value), &on_value_message, this);
}

UcxSession::~UcxSession() {
    close();
    base::ensure(worker_ == nullptr || !worker_->busy(), "UCX has let go of a session that goes");
    threads::trim_soon();  // its worker and its endpoint took some MB
}

void UcxSession::meet() {
    if (!first_ping_ || sending_->connected() || client_->closed()) {
        return;
    }
    try {
        sending_->connect(address_);
        client_->set_lanes(sending_->lanes(), false);
        session_.on_ping(*first_ping_);
        if (leaving_) {
            session_.leave();
            if (client_->asked()) {
                client_->note_asked(base::Clock::now());  // it was not told before
            }
        }
    } catch (const std::exception&) {
        client_->doom();
    }
}

void UcxSession::leave() {
    leaving_ = true;
    if (sending_->connected()) {
        session_.leave();
    }
}

void UcxSession::close() {
    if (begin_close()) {
        session_.close();
    }
}

base::TimePoint UcxSession::tick(ucx::Progress&, base::TimePoint now) {
    if (closed()) {
        return base::TimePoint::max();
    }
    meet();
    base::TimePoint meets = base::TimePoint::max();
    if (!sending_->connected()) {
        meets = begun_ + kMeetTimeout;
        if (now > meets) {
            client_->report(base::log::warning, base::log::EventKind::refused,
                            "it has sent nothing for 20 s");
            client_->doom();
        }
    }
    const auto [over, due] = session_.look(now);
    if (over) {
        close();
    }
    return std::min(due, meets);
}

protocol::Sum UcxSession::take_sums(const void* header, std::size_t& header_size,
                                    bool checked) const {
    if (sending_->connected() && checked != sending_->checks()) {
        throw base::Error(base::ErrorKind::protocol, "messages with checksums and without");
    }
    if (!checked) {
        return std::nullopt;
    }
    const protocol::Sum sum = protocol::take_sums(header, header_size);
    if (!sum) {
        throw base::Error(base::ErrorKind::protocol, "a message was changed on its way");
    }
    return sum;
}

template <typename Handle>
void UcxSession::in_round(Handle handle) {
    const base::Clock::duration before = base::worked();
    seat_.work_until(worker_->round + sessions::Turns::kTurn);
    handle();
    seat_.charge(base::worked() - before);
}

ucs_status_t UcxSession::on_request_message(void* self, const void* header, std::size_t header_size,
                                            void* data, std::size_t size,
                                            const ucp_am_recv_param_t* param) {
    auto& session = *static_cast<UcxSession*>(self);
    session.in_round([&] {
        session.session_.guard([&] {
            if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV ||
                size > protocol::kMaxRequestBytes) {
                throw base::Error(base::ErrorKind::protocol, "a request that is too large");
            }
            session.handle_request(header, header_size,
                                   {static_cast<const std::byte*>(data), size});
        });
    });
    return UCS_OK;
}

void UcxSession::handle_request(const void* header, std::size_t header_size,
                                std::span<const std::byte> body) {
    session_.dispatch<protocol::RequestHeader>(
        header, header_size, [&](const protocol::RequestHeader& decoded) {
            std::size_t plain_header = header_size;
            const protocol::Sum sum =
                take_sums(header, plain_header, (decoded.flags & protocol::kChecked) != 0);
            if (sum && memory::crc32c(body) != *sum) {
                return session_.on_altered(decoded);
            }
            if (sending_->connected()) {
                session_.on_request(decoded, body);
            } else if (decoded.op == protocol::Op::ping) {
                if (sum) {
                    sending_->check();
                }
                first_ping_ = decoded;
            } else {
                throw base::Error(base::ErrorKind::protocol, "a request before the first ping");
            }
        });
}

ucs_status_t UcxSession::on_value_message(void* self, const void* header, std::size_t header_size,
                                          void* data, std::size_t size,
                                          const ucp_am_recv_param_t* param) {
    auto& session = *static_cast<UcxSession*>(self);
    const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    bool kept = false;
    session.in_round([&] {
        session.session_.dispatch<protocol::ValueHeader>(
            header, header_size, [&](const protocol::ValueHeader& decoded) {
                std::size_t plain_header = header_size;
                const protocol::Sum sum =
                    session.take_sums(header, plain_header, session.sending_->checks());
                if (plain_header < sizeof(decoded)) {
                    throw base::Error(base::ErrorKind::protocol, "a value without a header");
                }
                const std::size_t key_size = plain_header - sizeof(decoded);
                if (size != decoded.length || key_size > protocol::kMaxKeyBytes) {
                    throw base::Error(base::ErrorKind::protocol,
                                      "a value that is not as long as it says");
                }
                if (!session.sending_->connected()) {
                    throw base::Error(base::ErrorKind::protocol, "a value before the first ping");
                }
                const std::string key(static_cast<const char*>(header) + sizeof(decoded), key_size);
                sessions::ArrivingValue::Bytes bytes{{}, rendezvous ? data : nullptr, sum};
                if (!rendezvous) {
                    bytes.data = {static_cast<const std::byte*>(data), size};
                }
                kept = session.session_.on_value(decoded, key, bytes);
            });
    });
    return kept ? UCS_INPROGRESS : UCS_OK;
}

}  // namespace ucxstore::ucx_server

#include "server/ucx_session.hpp"

#include <utility>

#include "base/ensure.hpp"
#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "ucx/request.hpp"

namespace ucxstore {
namespace {

// How long UCX may take to let go of memory once the endpoint was closed by force.
constexpr auto kReleaseTimeout = std::chrono::seconds(5);

}  // namespace

class UcxSession::UcxReceiver::Segment : public Request {
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
                                      std::uint64_t length, Write write) {
    std::byte* const memory = sink->memory();
    auto segment = std::make_unique<Segment>(std::move(sink));
    segment->write = write;
    if (memory != nullptr) {
        segment->pieces.push_back({memory, length});
    } else {
        segment->taken = length;
    }
    Request::receive(std::move(segment), worker_, parcel);
}

UcxSession::UcxSession(std::unique_ptr<Worker> worker, const Service& service,
                       std::weak_ptr<Progress> progress, const wire::Token& token,
                       const std::string& address, const std::string& peer)
    : Peer(std::move(worker), kReleaseTimeout),
      address_(address),
      client_(std::make_shared<ClientRecord>(service.counters, peer)),
      sending_(std::make_shared<UcxSending>(*worker_, token, client_)),
      receiver_(*worker_),
      session_(service, std::move(progress), token, client_, sending_, receiver_) {
    Endpoint::check_address(*worker_, address);
    worker_->on_message(static_cast<unsigned>(wire::Message::request), &on_request_message, this);
    worker_->on_message(static_cast<unsigned>(wire::Message::value), &on_value_message, this);
}

UcxSession::~UcxSession() {
    close();
    ensure(worker_ == nullptr || !worker_->busy(), "UCX has let go of a session that goes");
}

void UcxSession::meet() {
    if (!first_ping_ || sending_->connected() || client_->closed()) {
        return;
    }
    try {
        sending_->connect(address_);
        client_->set_lanes(sending_->lanes());
        session_.on_ping(*first_ping_);
    } catch (const std::exception&) {
        client_->doom();
    }
}

void UcxSession::close() {
    if (begin_close()) {
        session_.close();
    }
}

TimePoint UcxSession::tick(Progress&, TimePoint now) {
    if (closed()) {
        return TimePoint::max();
    }
    meet();
    const auto [over, due] = session_.look(now);
    if (over) {
        close();
    }
    return due;
}

ucs_status_t UcxSession::on_request_message(void* self, const void* header, std::size_t header_size,
                                            void* data, std::size_t size,
                                            const ucp_am_recv_param_t* param) {
    auto& session = *static_cast<UcxSession*>(self);
    session.session_.dispatch<wire::RequestHeader>(
        header, header_size, [&](const wire::RequestHeader& decoded) {
            if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || size > wire::kMaxRequestBytes) {
                throw Error(ErrorKind::protocol, "a request that is too large");
            }
            if (session.sending_->connected()) {
                session.session_.on_request(decoded, {static_cast<const std::byte*>(data), size});
            } else if (decoded.op == wire::Op::ping) {
                session.first_ping_ = decoded;
            } else {
                throw Error(ErrorKind::protocol, "a request before the first ping");
            }
        });
    return UCS_OK;
}

ucs_status_t UcxSession::on_value_message(void* self, const void* header, std::size_t header_size,
                                          void* data, std::size_t size,
                                          const ucp_am_recv_param_t* param) {
    auto& session = *static_cast<UcxSession*>(self);
    bool kept = false;
    session.session_.dispatch<wire::ValueHeader>(
        header, header_size, [&](const wire::ValueHeader& decoded) {
            const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
            const std::size_t key_size = header_size - sizeof(decoded);
            if (size != decoded.length || key_size > wire::kMaxKeyBytes) {
                throw Error(ErrorKind::protocol, "a value that is not as long as it says");
            }
            if (!session.sending_->connected()) {
                throw Error(ErrorKind::protocol, "a value before the first ping");
            }
            const std::string key(static_cast<const char*>(header) + sizeof(decoded), key_size);
            const std::span<const std::byte> bytes(
                rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size);
            kept = session.session_.on_value(decoded, key, bytes, rendezvous ? data : nullptr);
        });
    return kept ? UCS_INPROGRESS : UCS_OK;
}

}  // namespace ucxstore

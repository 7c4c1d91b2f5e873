#include "server/sending.hpp"

#include <algorithm>
#include <utility>

#include "base/ensure.hpp"
#include "server/answer.hpp"
#include "ucx/request.hpp"

namespace ucxstore {

// A reply, or a segment of one: pins the value, or owns the bytes, that it is sent from.
class Sending::Message : public Request {
  public:
    std::shared_ptr<Sending> sending;
    std::shared_ptr<const Region> value;
    std::string payload;
    std::uint64_t bytes = 0;

    void completed(ucs_status_t status) override { sending->sent(bytes, status); }
};

Sending::Sending(Worker& worker, const wire::Token& token, std::shared_ptr<ClientRecord> client,
                 std::function<void()> on_sent)
    : worker_(worker), token_(token), client_(std::move(client)), on_sent_(std::move(on_sent)) {}

void Sending::connect(const std::string& address) {
    endpoint_ = std::make_unique<Endpoint>(worker_, address);
    client_->set_lanes(endpoint_->lanes());
}

void Sending::close() {
    on_sent_ = nullptr;
    values_.clear();
    if (endpoint_ != nullptr) {
        endpoint_->close();
    }
}

bool Sending::has_room() const { return messages_ < kMaxMessages && bytes_ < kMaxBytes; }

bool Sending::send_next() {
    if (values_.empty()) {
        return false;
    }
    PendingGet& next = values_.front();
    bool more = false;
    try {
        send_segment(next);
        more = !next.done();
    } catch (const std::exception& error) {
        reply(next.id(), status_of(error), error.what());
    }
    if (!more) {
        values_.pop_front();
    }
    return true;
}

void Sending::send_segment(PendingGet& get) {
    auto message = std::make_unique<Message>();
    message->value = get.value();
    const wire::ReplyHeader header = get.next(message->pieces, message->payload);
    message->bytes = header.length;
    send(header, std::move(message));
}

void Sending::abandon(std::uint64_t request) {
    std::erase_if(values_,
                  [request](const PendingGet& one) { return one.id().request == request; });
}

void Sending::reply(const ItemId& id, wire::Status status, std::string payload) {
    if (status != wire::Status::ok) {
        payload.resize(std::min(payload.size(), wire::kMaxErrorBytes));
    }
    auto message = std::make_unique<Message>();
    message->payload = std::move(payload);
    message->bytes = message->payload.size();
    if (message->bytes > 0) {
        message->pieces.push_back({message->payload.data(), message->payload.size()});
    }
    wire::ReplyHeader header{};
    header.request = id.request;
    header.item = id.item;
    header.status = status;
    header.reply_size = message->bytes;
    header.segment = std::max<std::uint64_t>(message->bytes, wire::kMinSegmentBytes);
    header.length = message->bytes;
    send(header, std::move(message));
}

void Sending::refuse(const ItemId& id, const PendingGet::Refusal& refusal) {
    wire::ReplyHeader header{};
    header.request = id.request;
    header.item = id.item;
    header.status = refusal.status;
    header.value_size = refusal.value_size;
    header.version = refusal.version;
    header.segment = wire::kMinSegmentBytes;
    send(header, std::make_unique<Message>());
}

void Sending::send(wire::ReplyHeader header, std::unique_ptr<Message> message) {
    const ucp_ep_h endpoint = endpoint_ == nullptr ? nullptr : endpoint_->get();
    if (endpoint == nullptr) {
        return;  // the client is gone, and the session about to go
    }
    header.token = token_;
    const std::uint64_t bytes = message->bytes;
    ++messages_;
    bytes_ += bytes;
    message->sending = shared_from_this();
    try {
        Request::send(std::move(message), worker_, endpoint, wire::Message::reply, &header,
                      sizeof(header));
    } catch (const std::exception&) {  // it has not been sent
        --messages_;
        bytes_ -= bytes;
        throw;
    }
    client_->note_in_flight(bytes_);
}

void Sending::sent(std::uint64_t bytes, ucs_status_t status) {
    ensure(messages_ > 0 && bytes_ >= bytes, "a message completes once");
    --messages_;
    bytes_ -= bytes;
    client_->moved();
    client_->note_in_flight(bytes_);
    if (status != UCS_OK) {
        return;
    }
    client_->count_sent(bytes);
    try {
        if (on_sent_) {
            on_sent_();
        }
    } catch (const std::exception&) {  // for want of memory; none may pass through UCX
        client_->doom();
    }
}

}  // namespace ucxstore

#include "server/sending.hpp"

#include <algorithm>
#include <utility>

#include "base/ensure.hpp"
#include "server/answer.hpp"

namespace ucxstore {

void Sending::close() {
    on_sent_ = nullptr;
    values_.clear();
    end();
}

bool Sending::send_next() {
    if (values_.empty()) {
        return false;
    }
    PendingGet& next = values_.front();
    bool more = false;
    try {
        Message message;
        message.value = next.value();
        message.header = next.next(message.pieces, message.payload);
        give(std::move(message));
        more = !next.done();
    } catch (const std::exception& error) {
        reply(next.id(), status_of(error), error.what());
    }
    if (!more) {
        values_.pop_front();
    }
    return true;
}

void Sending::abandon(std::uint64_t request) {
    std::erase_if(values_,
                  [request](const PendingGet& one) { return one.id().request == request; });
}

void Sending::reply(const ItemId& id, wire::Status status, std::string payload) {
    if (status != wire::Status::ok) {
        payload.resize(std::min(payload.size(), wire::kMaxErrorBytes));
    }
    Message message;
    message.payload = std::move(payload);
    message.header.request = id.request;
    message.header.item = id.item;
    message.header.status = status;
    message.header.reply_size = message.payload.size();
    message.header.segment = std::max(message.payload.size(), wire::kMinSegmentBytes);
    message.header.length = message.payload.size();
    give(std::move(message));
}

void Sending::refuse(const ItemId& id, const wire::Refusal& refusal) {
    Message message;
    message.header.request = id.request;
    message.header.item = id.item;
    message.header.status = refusal.status;
    message.header.value_size = refusal.value_size;
    message.header.version = refusal.version;
    message.header.segment = wire::kMinSegmentBytes;
    give(std::move(message));
}

void Sending::give(Message message) {
    message.header.token = token_;
    const std::uint64_t bytes = message.bytes();
    ++messages_;
    bytes_ += bytes;
    bool given = false;
    try {
        given = send(std::move(message));
    } catch (const std::exception&) {
        --messages_;
        bytes_ -= bytes;
        throw;
    }
    if (!given) {  // the client is gone, and the session about to go
        --messages_;
        bytes_ -= bytes;
        return;
    }
    client_->note_in_flight(bytes_);
}

void Sending::sent(std::uint64_t bytes, bool arrived) {
    ensure(messages_ > 0 && bytes_ >= bytes, "a message completes once");
    --messages_;
    bytes_ -= bytes;
    client_->moved();
    client_->note_in_flight(bytes_);
    if (!arrived) {
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

#include "ucx_client/connection.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "client/link_events.hpp"
#include "client/reply.hpp"
#include "memory/crc32c.hpp"

namespace ucxstore::ucx_client {
namespace {

// The most that is in flight to one server: enough to fill any lane. The rest waits.
constexpr std::uint64_t kMaxSends = 128;
constexpr std::uint64_t kMaxSendBytes = 256ull << 20;

// Not over loopback, where the bytes stay in the host's memory, and a second pass over them costs a
// good part of the time.
bool crosses_a_network_by_tcp(const std::vector<std::string>& lanes) {
    return std::ranges::any_of(
        lanes, [](const std::string& one) { return one.starts_with("tcp/") && one != "tcp/lo"; });
}

// How long a transfer of a finished or cancelled operation may still run before the endpoint is
// closed by force to get its memory back (that ends the other requests on it too).
constexpr auto kReleaseGrace = std::chrono::seconds(1);

// How long UCX may take to give memory back after that (measured: 0.2 ms). Then the caller gets
// its failure, and the memory is leaked: never freed while UCX may write to it.
constexpr auto kReleaseTimeout = std::chrono::seconds(1);

}  // namespace

class Connection::Receive : public ucx::Request {
  public:
    std::shared_ptr<Connection> connection;
    std::shared_ptr<client::Operation> operation;
    std::uint32_t item;
    std::uint64_t length;
    protocol::Sum expected;

    ~Receive() override { end(); }
    // Counts it as active: until UCX has completed it, or has not been given it.
    void begin() {
        ++operation->active;
        begun_ = true;
    }
    void completed(ucs_status_t status) override {
        end();
        if (operation->registered) {
            note(operation->items[item], status);
        }
        connection->conversation_.released(operation);
    }

  private:
    void note(client::Item& received, ucs_status_t status) {
        if (status != UCS_OK) {
            connection->broke_off(operation, received, status);
        } else if (expected && sum() != *expected) {
            connection->altered(operation, received);
        } else {
            connection->conversation_.segment_arrived(operation, received, length);
        }
    }
    void end() {
        if (std::exchange(begun_, false)) {
            --operation->active;
        }
    }

    bool begun_ = false;
};

class Connection::SendValue : public ucx::Request {
  public:
    std::shared_ptr<Connection> connection;
    std::shared_ptr<client::Operation> operation;
    std::uint64_t length;

    ~SendValue() override { end(); }
    // As for Receive.
    void begin() {
        ++operation->active;
        ++connection->active_sends_;
        connection->active_bytes_ += length;
        begun_ = true;
    }
    void completed(ucs_status_t status) override {
        end();
        if (status == UCS_OK) {
            connection->conversation_.moved(*operation);
            connection->pump();
        }
        // A failure shows as the end of the connection, or as the server's own reply.
        connection->conversation_.released(operation);
    }

  private:
    void end() {
        if (std::exchange(begun_, false)) {
            --operation->active;
            --connection->active_sends_;
            connection->active_bytes_ -= length;
        }
    }

    bool begun_ = false;
};

class Connection::SendRequest : public ucx::Request {
  public:
    std::string body;

    void completed(ucs_status_t) override {}  // a failure shows as the end of the connection
};

Connection::Connection(std::unique_ptr<ucx::Worker> worker, const protocol::Token& token,
                       const std::string& address, std::string peer, Integrity integrity)
    : ucx::Peer(std::move(worker), kReleaseTimeout),
      conversation_(token, std::move(peer), *this),
      endpoint_(*worker_, address),
      checked_(integrity.value_or(crosses_a_network_by_tcp(endpoint_.lanes()))) {
    worker_->on_message(static_cast<unsigned>(protocol::Message::reply), &on_message, this);
    // A first message at once, before UCX looks at its sockets again: where the server has gone by
    // then, UCX crashes as it sends the first one, until it has called Endpoint::on_error(). Nobody
    // waits for the answer.
    send_request({{token, 0, protocol::Op::ping, 0, 0, 0}, {}});
}

void Connection::doom(base::ErrorKind kind, const std::string& message) {
    if (!doom_) {
        doom_ = {kind, message};
    }
}

ucs_status_t Connection::on_message(void* self, const void* header, std::size_t header_size,
                                    void* data, std::size_t size,
                                    const ucp_am_recv_param_t* param) {
    // No exception may pass through UCX.
    auto* connection = static_cast<Connection*>(self);
    const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    Payload payload{
        {rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size},
        size,
        rendezvous ? data : nullptr,
        std::nullopt};
    try {
        try {
            connection->on_payload(header, header_size, payload);
        } catch (const base::Error& error) {
            connection->doom(error.kind(), client::Conversation::cause_of(error));
        }
    } catch (const std::exception&) {  // for want of memory
        connection->lose();
    }
    return UCS_OK;
}

void Connection::on_payload(const void* header, std::size_t header_size, Payload payload) {
    const auto decoded = protocol::read_header<protocol::ReplyHeader>(header, header_size);
    if (!decoded || decoded->token != token()) {
        return;
    }
    if (checked_) {
        payload.sum = protocol::take_sums(header, header_size);
        if (!payload.sum) {
            throw base::Error(base::ErrorKind::integrity, "a reply was changed on its way");
        }
    }
    on_reply(*decoded, payload);
}

void Connection::report_connected() const {
    std::string lanes;
    for (const std::string& lane : endpoint_.lanes()) {
        lanes += (lanes.empty() ? "" : ", ") + lane;
    }
    client::report(base::log::info, base::log::EventKind::connected, peer(), lanes);
}

void Connection::start(const std::shared_ptr<client::Operation>& operation) {
    thread_.check("starting an operation");
    operation->large = operation->memory_bytes() >= client::Operation::kLargeBytes;
    conversation_.start(operation);
}

void Connection::send_request(client::Outgoing outgoing) {
    const ucp_ep_h endpoint = endpoint_.get();
    if (endpoint == nullptr) {
        return;  // tick() will fail what waits for the reply
    }
    auto request = std::make_unique<SendRequest>();
    request->body = std::move(outgoing.body);
    request->pieces.push_back({request->body.data(), request->body.size()});
    outgoing.header.flags |= checked_ ? protocol::kChecked : 0;
    std::string header(reinterpret_cast<const char*>(&outgoing.header), sizeof(outgoing.header));
    if (checked_) {
        protocol::append_sums(header, memory::crc32c(request->pieces));
    }
    ucx::Request::send(std::move(request), *worker_, endpoint, protocol::Message::request,
                       header.data(), header.size());
}

void Connection::pump() {
    conversation_.send_values([this](const std::shared_ptr<client::Operation>& operation,
                                     client::Item& item, std::uint32_t index) {
        const bool has_room =
            !failed() && active_sends_ < kMaxSends && active_bytes_ < kMaxSendBytes;
        if (has_room) {
            send_segment(operation, item, index);
        }
        return has_room;
    });
}

void Connection::send_segment(const std::shared_ptr<client::Operation>& operation,
                              client::Item& item, std::uint32_t index) {
    const client::Memory& memory = *item.memory;
    const protocol::ValueHeader header =
        conversation_.value_header(*operation, index, memory.segment_bytes());
    item.next += header.length;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes += item.key;

    auto request = std::make_unique<SendValue>();
    request->connection = self();
    request->operation = operation;
    request->length = header.length;
    memory.pieces(header.offset, header.length, request->pieces);
    if (checked_) {
        protocol::append_sums(bytes, memory::crc32c(request->pieces));
    }
    request->begin();
    ucx::Request::send(std::move(request), *worker_, endpoint_.get(), protocol::Message::value,
                       bytes.data(), bytes.size());
}

void Connection::on_reply(const protocol::ReplyHeader& header, const Payload& payload) {
    const auto operation = conversation_.on_reply(header);
    if (operation == nullptr) {
        return;  // UCX drops what we do not receive
    }
    if (!std::exchange(answered_, true) &&
        base::log::wants(base::log::Area::client, base::log::info)) {
        report_connected();
    }
    const std::span<const std::byte> data = payload.data;
    const bool is_altered =
        payload.sum && payload.descriptor == nullptr && memory::crc32c(data) != *payload.sum;
    if (is_altered && header.item < operation->items.size()) {
        return altered(operation, operation->items[header.item]);
    }
    if (client::note_reply(peer(), *operation, header,
                           {reinterpret_cast<const char*>(data.data()), data.size()})) {
        receive(operation, header, payload);
    } else if (header.status == protocol::Status::altered) {
        conversation_.finish(operation);
    } else if (header.status == protocol::Status::storage) {
        conversation_.finish(operation);  // segments of it that were sent before may still come
    } else {
        conversation_.item_done(operation, operation->items[header.item]);
    }
}

void Connection::receive(const std::shared_ptr<client::Operation>& operation,
                         const protocol::ReplyHeader& header, const Payload& payload) {
    client::note_segment(*operation, header, payload.size);
    client::Item& item = operation->items[header.item];
    if (header.length == 0) {
        conversation_.item_done(operation, item);
        return;
    }
    auto request = std::make_unique<Receive>();
    request->pieces = client::pieces_of(item, header);
    if (payload.descriptor == nullptr) {
        protocol::scatter(payload.data.data(), payload.data.size(), request->pieces);
        conversation_.segment_arrived(operation, item, header.length);
        return;
    }
    request->connection = self();
    request->operation = operation;
    request->item = header.item;
    request->length = header.length;
    request->expected = payload.sum;
    request->summed = payload.sum.has_value();
    request->write = operation->large || header.reply_size >= client::Operation::kLargeBytes
                         ? memory::Write::past_caches
                         : memory::Write::cached;
    request->begin();
    ucx::Request::receive(std::move(request), *worker_, payload.descriptor);
}

void Connection::altered(const std::shared_ptr<client::Operation>& operation,
                         const client::Item& item) {
    operation->fail(base::ErrorKind::integrity,
                    {peer(), ": '", item.key,
                     "' was changed on its way here: a message does not fit its checksum"});
    conversation_.finish(operation);
}

// The endpoint is failing, or the server could not send what it promised: of this reply nothing
// more will come that can be used.
void Connection::broke_off(const std::shared_ptr<client::Operation>& operation,
                           const client::Item& item, ucs_status_t status) {
    operation->fail(base::ErrorKind::server_lost,
                    {peer(), ": '", item.key, "' broke off: ", base::ucs_status_string(status)});
    conversation_.finish(operation);
}

void Connection::close(base::ErrorKind kind, std::string_view message, bool lost) {
    if (!begin_close()) {
        return;
    }
    conversation_.report_end(lost, message);
    endpoint_.close();
    conversation_.end(kind, message);
}

void Connection::shut(const char* why) { close(base::ErrorKind::server_lost, why, false); }

base::TimePoint Connection::tick(ucx::Progress& progress, base::TimePoint now) {
    if (doom_) {
        close(doom_->kind, doom_->message);
    }
    if (lost_) {
        close(base::ErrorKind::server_lost, "the server is gone");
    }
    if (endpoint_.failed() && !closed_) {
        close(base::ErrorKind::server_lost, "the server is gone (" + endpoint_.cause() + ")");
    }
    return std::min({conversation_.tick(now), release(progress, now)});
}

// The memory is given back only once the transfer ends, and so the connection.
void Connection::on_stuck(const std::string& text) {
    close(base::ErrorKind::server_lost,
          "the connection was reset, as another request on it stood still (" + text + ")");
}

base::TimePoint Connection::release(ucx::Progress& progress, base::TimePoint now) {
    const auto [stuck, next] =
        conversation_.unreleased(now, closed_ ? kReleaseTimeout : kReleaseGrace);
    if (stuck.empty()) {
        return next;
    }
    if (!closed_) {
        close(base::ErrorKind::server_lost,
              "the connection was reset, as a cancelled request on it did not end");
        conversation_.wait_anew(now);
        return now + kReleaseTimeout;
    }
    if (worker_ != nullptr) {
        progress.retire(worker_, true);  // gives all back that it can
    }
    conversation_.leak(stuck, "UCX did not give the memory back");
    return next;
}

}  // namespace ucxstore::ucx_client

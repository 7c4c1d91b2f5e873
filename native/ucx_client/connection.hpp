// A client's connection to one server. All of it but the constructor's caller runs on the client's
// progress thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/conversation.hpp"
#include "protocol/sums.hpp"
#include "ucx/endpoint.hpp"
#include "ucx/peer.hpp"
#include "ucx/request.hpp"

namespace ucxstore::ucx_client {

class Connection : public ucx::Peer, private client::Conversation::Carrier {
  public:
    // Whether all messages have checksums; nullopt: where they go over TCP to another host.
    using Integrity = std::optional<bool>;

    // Takes the worker that it alone uses. Throws Error(connect).
    Connection(std::unique_ptr<ucx::Worker> worker, const protocol::Token& token,
               const std::string& address, std::string peer, Integrity integrity = false);

    const protocol::Token& token() const { return conversation_.token(); }
    const std::string& peer() const { return conversation_.peer(); }
    std::vector<std::string> lanes() const { return endpoint_.lanes(); }
    bool checked() const { return checked_; }                               // any thread
    bool failed() const override { return closed_ || endpoint_.failed(); }  // any thread
    // Whether the server has said that it ends. Any thread.
    bool leaving() const { return conversation_.leaving(); }

    void lose() noexcept override { lost_ = true; }
    void shut(const char* why) override;
    base::TimePoint tick(ucx::Progress& progress, base::TimePoint now) override;
    bool busy() const override { return !conversation_.empty(); }

    void start(const std::shared_ptr<client::Operation>& operation);
    // The operation fails as cancelled, once what UCX is transferring for it right now has ended.
    void cancel(const std::shared_ptr<client::Operation>& operation) {
        conversation_.cancel(operation);
    }

  private:
    // The server is lost, or has broken the protocol. Only noted, as nothing may be closed inside
    // UCX's callbacks; tick() closes.
    void doom(base::ErrorKind kind, const std::string& message);
    // Fails all operations on it, in bounded time. Needs no memory. `lost` as in report_end().
    void close(base::ErrorKind kind, std::string_view message, bool lost = true);
    void report_connected() const;
    std::shared_ptr<Connection> self() {
        return std::static_pointer_cast<Connection>(shared_from_this());
    }
    static ucs_status_t on_message(void* self, const void* header, std::size_t header_size,
                                   void* data, std::size_t size, const ucp_am_recv_param_t* param);
    // What comes with a reply: `size` bytes, in `data`, or still to be received with `descriptor`.
    struct Payload {
        std::span<const std::byte> data;
        std::size_t size;
        void* descriptor;
        protocol::Sum sum;
    };
    // Handles a message that has come, or throws.
    void on_payload(const void* header, std::size_t header_size, Payload payload);
    // Throws Error(protocol) where the server breaks the protocol.
    void on_reply(const protocol::ReplyHeader& header, const Payload& payload);
    class Receive;
    class SendValue;
    class SendRequest;

    void send_request(client::Outgoing outgoing) override;
    void pump() override;
    void on_stuck(const std::string& text) override;
    void send_segment(const std::shared_ptr<client::Operation>& operation, client::Item& item,
                      std::uint32_t index);
    void receive(const std::shared_ptr<client::Operation>& operation,
                 const protocol::ReplyHeader& header, const Payload& payload);
    // A segment of it has come, but was changed on its way.
    void altered(const std::shared_ptr<client::Operation>& operation, const client::Item& item);
    void broke_off(const std::shared_ptr<client::Operation>& operation, const client::Item& item,
                   ucs_status_t status);
    base::TimePoint release(ucx::Progress& progress, base::TimePoint now);

    struct Doom {
        base::ErrorKind kind;
        std::string message;
    };

    client::Conversation conversation_;
    ucx::Endpoint endpoint_;
    const bool checked_;
    std::uint64_t active_sends_ = 0;
    std::uint64_t active_bytes_ = 0;
    bool answered_ = false;  // whether any reply has come
    std::optional<Doom> doom_;
    bool lost_ = false;
};

}  // namespace ucxstore::ucx_client

// A client's connection to one server. All of it but the constructor's caller runs on the client's
// progress thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "client/in_flight.hpp"
#include "ucx/endpoint.hpp"
#include "ucx/peer.hpp"
#include "ucx/request.hpp"

namespace ucxstore {

class Connection : public Peer {
  public:
    // Takes the worker that it alone uses. Throws Error(connect).
    Connection(std::unique_ptr<Worker> worker, const wire::Token& token, const std::string& address,
               std::string peer);

    const wire::Token& token() const { return token_; }
    const std::string& peer() const { return peer_; }
    std::vector<std::string> lanes() const { return endpoint_.lanes(); }
    bool failed() const { return closed_ || endpoint_.failed(); }  // any thread

    void lose() override { doom(ErrorKind::server_lost, "the server is gone"); }
    void shut(const char* why) override;
    TimePoint tick(Progress& progress, TimePoint now) override;
    bool busy() const override { return !in_flight_.empty(); }

    void start(const std::shared_ptr<Operation>& operation);
    // The operation fails as cancelled, once what UCX is transferring for it right now has ended.
    void cancel(const std::shared_ptr<Operation>& operation);

  private:
    // The server is lost, or has broken the protocol. Only noted, as nothing may be closed inside
    // UCX's callbacks; tick() closes.
    void doom(ErrorKind kind, const std::string& message);
    // Fails all operations on it, in bounded time.
    void close(ErrorKind kind, const std::string& message);
    // The same, and logs a warning: this side did not want it.
    void give_up(ErrorKind kind, const std::string& message);
    void report_connected() const;
    std::shared_ptr<Connection> self() {
        return std::static_pointer_cast<Connection>(shared_from_this());
    }
    static ucs_status_t on_message(void* self, const void* header, std::size_t header_size,
                                   void* data, std::size_t size, const ucp_am_recv_param_t* param);
    // A reply of `size` bytes: in `data`, or still to be received with `descriptor`. Throws
    // Error(protocol) where the server breaks the protocol.
    void on_reply(const wire::ReplyHeader& header, std::span<const std::byte> data,
                  std::size_t size, void* descriptor);
    class Receive;
    class SendValue;
    class SendRequest;

    void pump();
    void send_request(Outgoing outgoing);
    void send_segment(const std::shared_ptr<Operation>& operation, Item& item, std::uint32_t index);
    void receive(const std::shared_ptr<Operation>& operation, const wire::ReplyHeader& header,
                 std::span<const std::byte> data, std::size_t size, void* descriptor);
    void segment_arrived(const std::shared_ptr<Operation>& operation, Item& item,
                         std::uint64_t length, ucs_status_t status);
    void item_done(const std::shared_ptr<Operation>& operation, Item& item);
    void finish(const std::shared_ptr<Operation>& operation);
    TimePoint time_out(TimePoint now);
    TimePoint release(Progress& progress, TimePoint now);

    // An item whose value is still to be sent, or the rest of it.
    struct Value {
        std::shared_ptr<Operation> operation;
        std::uint32_t item;
    };

    struct Doom {
        ErrorKind kind;
        std::string message;
    };

    const wire::Token token_;
    const std::string peer_;
    Endpoint endpoint_;
    InFlight in_flight_;
    std::deque<Value> values_;
    std::uint64_t active_sends_ = 0;
    std::uint64_t active_bytes_ = 0;
    bool pumping_ = false;
    bool answered_ = false;  // whether any reply has come
    std::string cause_;
    std::optional<Doom> doom_;
};

}  // namespace ucxstore

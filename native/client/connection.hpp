// One server, on the client's side. Everything but the constructor's caller runs on the client's
// progress thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "client/operation.hpp"
#include "ucx/control.hpp"
#include "ucx/endpoint.hpp"
#include "ucx/request.hpp"

namespace ucxstore {

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    // Takes the worker that it alone uses. Throws Error(connect).
    Connection(std::unique_ptr<Worker> worker, const wire::Token& token, const std::string& address,
               std::string peer);

    const wire::Token& token() const { return token_; }
    const std::string& peer() const { return peer_; }
    std::vector<std::string> lanes() const { return endpoint_.lanes(); }
    bool failed() const { return closed_ || endpoint_.failed(); }  // any thread
    bool closed() const { return closed_; }

    Worker& worker() { return *worker_; }
    // None where settle() or tick() has destroyed or leaked it.
    bool has_worker() const { return worker_ != nullptr; }
    void set_control(std::unique_ptr<Control> control) { control_ = std::move(control); }
    // The server is lost, or has broken the protocol: noted where nothing may be closed, in UCX's
    // callbacks; tick() closes.
    void doom(ErrorKind kind, const std::string& message);

    void start(const std::shared_ptr<Operation>& operation);
    // The operation fails as cancelled, once what UCX is transferring for it right now has ended.
    void cancel(const std::shared_ptr<Operation>& operation);
    // Everything on it fails with this, in bounded time.
    void close(ErrorKind kind, const std::string& message);

    // Deadlines. Returns when the next look is due.
    TimePoint tick(Progress& progress, TimePoint now);

    // Once closed: destroys the worker if it may be. True when that is done, or it was leaked as
    // UCX has not let go of it in time (`overdue`: now).
    bool settle(Progress& progress, TimePoint now, bool overdue = false);

  private:
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
    void receive(const std::shared_ptr<Operation>& operation, Item& item,
                 const wire::ReplyHeader& header, std::span<const std::byte> data, std::size_t size,
                 void* descriptor);
    // All of a reply is of one value, and of the one that was asked for.
    static void check_version(Item& item, std::uint64_t version);
    void segment_arrived(const std::shared_ptr<Operation>& operation, Item& item,
                         std::uint64_t length, ucs_status_t status);
    void item_done(const std::shared_ptr<Operation>& operation, Item& item);
    // UCX has let go of one more piece of its memory.
    void released(const std::shared_ptr<Operation>& operation);
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

    std::unique_ptr<Worker> worker_;
    const wire::Token token_;
    const std::string peer_;
    Endpoint endpoint_;
    std::unique_ptr<Control> control_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Operation>> operations_;
    // Finished, but UCX still has hold of their memory; and since when.
    std::unordered_map<std::uint64_t, std::pair<std::shared_ptr<Operation>, TimePoint>> releasing_;
    std::deque<Value> values_;
    std::uint64_t active_sends_ = 0;
    std::uint64_t active_bytes_ = 0;
    bool pumping_ = false;
    std::atomic<bool> closed_ = false;
    TimePoint closed_at_{};
    std::string cause_;
    std::optional<Doom> doom_;
};

}  // namespace ucxstore

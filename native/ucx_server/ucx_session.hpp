// A session over UCX: the messages of a worker that only it uses, and the life of that worker.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "protocol/sums.hpp"
#include "sessions/session.hpp"
#include "sessions/yielding.hpp"
#include "ucx/peer.hpp"
#include "ucx_server/ucx_sending.hpp"

namespace ucxstore::ucx_server {

class UcxSession : public ucx::Peer, public sessions::Yielding {
  public:
    // Takes the worker. `address` is the client's. Throws Error(connect).
    UcxSession(std::unique_ptr<ucx::Worker> worker, const sessions::Service& service,
               std::weak_ptr<ucx::Progress> progress, sessions::Turns& turns,
               const protocol::Token& token, const std::string& address,
               const sessions::Admitted& client);
    ~UcxSession() override;

    void lose() noexcept override { client_->doom(); }
    void shut(const char*) override { close(); }
    // Ends it where the client is gone, or has stalled.
    base::TimePoint tick(ucx::Progress& progress, base::TimePoint now) override;
    // As Session::leave(), as soon as the client can be told.
    void leave() override;
    bool busy() const override { return session_.busy(); }
    sessions::ClientRecord& record() override { return *client_; }
    bool may_yield() override { return !busy(); }
    void ask() override { leave(); }
    void end() override { close(); }

  private:
    // Receives what comes by rendezvous: a parcel is UCX's descriptor.
    class UcxReceiver : public sessions::Receiver {
      public:
        explicit UcxReceiver(ucx::Worker& worker) : worker_(worker) {}
        void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                     memory::Write write) override;
        // UCX then ends the transfer at the client, too.
        void drop(Parcel parcel) override { base::ucp_am_data_release(worker_.get(), parcel); }

      private:
        class Segment;

        ucx::Worker& worker_;
    };

    // Makes the endpoint once the client's first message has come. So UCX always uses the
    // connection that the client has made, and a client never has to accept one. A forked child
    // could not, as UCX's accepting thread stays with its parent. Not inside UCX's callbacks.
    void meet();
    void close();
    // Where the message has checksums, takes them off the end of its header: that of its data.
    // Throws Error(protocol) where the header was changed on its way.
    protocol::Sum take_sums(const void* header, std::size_t& header_size, bool checked) const;

    // Handles a message within what is left of the thread's round for that, for all its sessions
    // together: UCX brings many at once. What is left then has its turn.
    template <typename Handle>
    void in_round(Handle handle);

    // Throws Error(protocol) where the client breaks the protocol.
    void handle_request(const void* header, std::size_t header_size,
                        std::span<const std::byte> body);
    static ucs_status_t on_request_message(void* self, const void* header, std::size_t header_size,
                                           void* data, std::size_t size,
                                           const ucp_am_recv_param_t* param);
    static ucs_status_t on_value_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param);

    const std::string address_;
    const std::shared_ptr<sessions::ClientRecord> client_;
    sessions::Turns::Seat seat_;
    const std::shared_ptr<UcxSending> sending_;
    UcxReceiver receiver_;
    sessions::Session session_;
    std::optional<protocol::RequestHeader> first_ping_;
    bool leaving_ = false;
    const base::TimePoint begun_ = base::Clock::now();
};

}  // namespace ucxstore::ucx_server

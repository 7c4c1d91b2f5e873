// A session over UCX: the messages of a worker that only it uses, and the life of that worker.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "protocol/sealing.hpp"
#include "protocol/sums.hpp"
#include "sessions/session.hpp"
#include "sessions/yielding.hpp"
#include "ucx/peer.hpp"
#include "ucx_server/ucx_sending.hpp"

namespace ucxstore::ucx_server {

class UcxSession : public ucx::Peer, public sessions::Yielding {
  public:
    // Takes the worker. `address` is the client's. With `seals`, all messages are encrypted. Throws
    // Error(connect).
    UcxSession(std::unique_ptr<ucx::Worker> worker, const sessions::Service& service,
               std::weak_ptr<ucx::Progress> progress, sessions::Turns& turns,
               const protocol::Token& token, const std::string& address,
               const sessions::Admitted& client, std::shared_ptr<protocol::Seals> seals = nullptr);
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
        UcxReceiver(ucx::Worker& worker, protocol::Seals* seals) : worker_(worker), seals_(seals) {}
        void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                     memory::Write write) override;
        // UCX then ends the transfer at the client, too.
        void drop(Parcel parcel) override {
            sealed_.erase(parcel);
            base::ucp_am_data_release(worker_.get(), parcel);
        }
        // Notes that what comes in a parcel is the data of a sealed message; or that nobody will
        // receive or drop it.
        void note(Parcel parcel, const protocol::Opener::Data& data) {
            sealed_.insert_or_assign(parcel, data);
        }
        void forget(Parcel parcel) { sealed_.erase(parcel); }

      private:
        class Segment;

        ucx::Worker& worker_;
        protocol::Seals* const seals_;
        std::unordered_map<Parcel, protocol::Opener::Data> sealed_;
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

    // A message as it was sent: its header, and how many bytes of data it has.
    struct Whole {
        std::span<const std::byte> plain;  // where nothing is encrypted
        std::uint64_t data_bytes;
        std::optional<protocol::Opener::Opened> sealed;

        std::span<const std::byte> header() const {
            return sealed ? std::as_bytes(std::span(sealed->header)) : plain;
        }
    };
    // nullopt where it is not what was sent: then the session ends.
    std::optional<Whole> open(protocol::Message kind, const void* header, std::size_t header_size,
                              std::size_t data_size);

    static ucs_status_t on_request_message(void* self, const void* header, std::size_t header_size,
                                           void* data, std::size_t size,
                                           const ucp_am_recv_param_t* param);
    static ucs_status_t on_value_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param);

    const std::string address_;
    const std::shared_ptr<sessions::ClientRecord> client_;
    const std::shared_ptr<protocol::Seals> seals_;  // nullptr where nothing is encrypted
    sessions::Turns::Seat seat_;
    const std::shared_ptr<UcxSending> sending_;
    UcxReceiver receiver_;
    sessions::Session session_;
    std::optional<protocol::RequestHeader> first_ping_;
    bool leaving_ = false;
    const base::TimePoint begun_ = base::Clock::now();
};

}  // namespace ucxstore::ucx_server

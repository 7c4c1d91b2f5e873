// Session: a client as the server sees it. It takes the client's messages, and has Sending,
// Arriving and Awaiting answer them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/counters.hpp"
#include "protocol/wire.hpp"
#include "server/arriving.hpp"
#include "server/awaiting.hpp"
#include "server/client_record.hpp"
#include "server/sending.hpp"
#include "server/storages.hpp"
#include "ucx/peer.hpp"

namespace ucxstore {

class Session : public Peer {
  public:
    // Takes the worker that it alone uses. Throws Error(connect).
    Session(std::unique_ptr<Worker> worker, Storages storages, std::weak_ptr<Progress> progress,
            Counters& counters, bool read_only, const wire::Token& token,
            const std::string& address, const std::string& peer);
    ~Session() override;

    void lose() override { client_->doom(); }
    void shut(const char*) override { close(); }
    // Ends it where the client is gone, or has stalled.
    TimePoint tick(Progress& progress, TimePoint now) override;
    bool busy() const override;

  private:
    // Whether anything under way waits for the client.
    bool awaits_client() const { return sending_->in_flight() > 0 || arriving_->awaits_client(); }
    // Makes the endpoint once the client's first message has come. So UCX always uses the
    // connection that the client has made, and a client never has to accept one. A forked child
    // could not, as UCX's accepting thread stays with its parent. Not inside UCX's callbacks.
    void meet();
    // Frees the memory in bounded time: everything in flight completes as cancelled.
    void close();

    static ucs_status_t on_request_message(void* self, const void* header, std::size_t header_size,
                                           void* data, std::size_t size,
                                           const ucp_am_recv_param_t* param);
    static ucs_status_t on_value_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param);
    template <typename Header, typename Handle>
    ucs_status_t dispatch(const void* header, std::size_t header_size, Handle handle);

    // These throw Error(protocol) where the client breaks the protocol.
    void on_request(const wire::RequestHeader& header, std::span<const std::byte> body);
    void on_ping(const wire::RequestHeader& header);
    void on_get(const wire::RequestHeader& header, std::span<const std::byte> body);
    void on_space(const wire::RequestHeader& header, std::span<const std::byte> body);
    void on_other(const wire::RequestHeader& header, std::span<const std::byte> body);
    bool on_value(const wire::ValueHeader& header, const std::string& key,
                  std::span<const std::byte> data, void* descriptor);

    // Sends what waits, while there is room in flight.
    void pump();
    void open(PendingGet get);
    void send(PendingGet get, std::shared_ptr<const Region> value);
    void fetched(PendingGet get, Outcome<Awaiting::Value> outcome);
    void abandon(std::uint64_t request);

    const Storages storages_;
    Counters& counters_;
    const bool read_only_;
    const wire::Token token_;
    const std::string address_;
    const std::shared_ptr<ClientRecord> client_;
    const std::shared_ptr<Sending> sending_;
    const std::shared_ptr<Awaiting> awaiting_;
    const std::shared_ptr<Arriving> arriving_;
    std::optional<wire::RequestHeader> first_ping_;
    std::deque<PendingGet> gets_;  // whose turn has not come
    bool pumping_ = false;
};

}  // namespace ucxstore

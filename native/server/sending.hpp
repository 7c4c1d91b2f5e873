// What is being sent to a client: replies, and values in segments. What a message is sent from
// stays until UCX has let go of it, whatever becomes of the session.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "server/client_record.hpp"
#include "server/pending_get.hpp"
#include "ucx/endpoint.hpp"

namespace ucxstore {

// On the session's progress thread. Each message in flight keeps this alive.
class Sending : public std::enable_shared_from_this<Sending> {
  public:
    // What one client has in flight towards it: enough to keep any lane full, little enough that
    // its mappings and descriptors stay small. The rest waits as keys.
    static constexpr std::uint64_t kMaxMessages = 128;
    static constexpr std::uint64_t kMaxBytes = 256ull << 20;

    // `on_sent` runs when a message has been sent, and there may be room for another.
    Sending(Worker& worker, const wire::Token& token, std::shared_ptr<ClientRecord> client,
            std::function<void()> on_sent);
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

    // Makes the endpoint. Not inside UCX's callbacks. Throws Error(connect).
    void connect(const std::string& address);
    bool connected() const { return endpoint_ != nullptr; }
    bool failed() const { return connected() && endpoint_->failed(); }
    // Completes everything in flight as cancelled, in bounded time. on_sent does not run any more.
    void close();

    // A status, and its text or another payload. Both of these do nothing where the client is gone.
    void reply(const ItemId& id, wire::Status status, std::string payload = {});
    void refuse(const ItemId& id, const PendingGet::Refusal& refusal);

    // An open get, which is sent when its turn comes.
    void add(PendingGet get) { values_.push_back(std::move(get)); }
    // Whether one more message may be given to UCX.
    bool has_room() const;
    // Sends the next segment of what was added, if there is any: else false.
    bool send_next();
    // Drops what of this request is not given to UCX yet.
    void abandon(std::uint64_t request);

    // Messages that UCX has not completed: the client's to move.
    std::uint64_t in_flight() const { return messages_; }
    // Values of which there is more to send.
    std::size_t values() const { return values_.size(); }

  private:
    class Message;

    void send_segment(PendingGet& get);
    void send(wire::ReplyHeader header, std::unique_ptr<Message> message);
    void sent(std::uint64_t bytes, ucs_status_t status);

    Worker& worker_;
    const wire::Token token_;
    const std::shared_ptr<ClientRecord> client_;
    std::function<void()> on_sent_;
    std::unique_ptr<Endpoint> endpoint_;
    std::deque<PendingGet> values_;
    std::uint64_t messages_ = 0;
    std::uint64_t bytes_ = 0;  // of these messages
};

}  // namespace ucxstore

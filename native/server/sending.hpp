// Replies to a client, and values that it reads, in segments. The memory that a message is sent
// from stays until UCX has let go of it, whatever becomes of the session.
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
    // The most that is in flight to one client: enough to keep any lane full, and few enough
    // mappings and descriptors. The rest waits as keys.
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

    // Replies with a status, and a text or another payload. Both do nothing where the client is
    // gone.
    void reply(const ItemId& id, wire::Status status, std::string payload = {});
    void refuse(const ItemId& id, const PendingGet::Refusal& refusal);

    // Queues an open get.
    void add(PendingGet get) { values_.push_back(std::move(get)); }
    // Whether one more message may be given to UCX.
    bool has_room() const;
    // Sends the next segment of the gets that were added; false where there is none.
    bool send_next();
    // Drops the gets of this request. Messages that UCX has are still sent.
    void abandon(std::uint64_t request);

    // Messages that UCX has not completed: they wait for the client.
    std::uint64_t in_flight() const { return messages_; }
    // Gets of which there is more to send.
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

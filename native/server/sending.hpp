// Replies to a client, and values that it reads, in segments: what is sent, and in which order.
// What carries it is a class derived from this one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/client_record.hpp"
#include "server/pending_get.hpp"

namespace ucxstore {

// On the session's thread.
class Sending {
  public:
    // The most that is in flight to one client: enough to keep any lane full, and few enough
    // mappings and descriptors. The rest waits as keys.
    static constexpr std::uint64_t kMaxMessages = 128;
    static constexpr std::uint64_t kMaxBytes = 256ull << 20;

    Sending(const wire::Token& token, std::shared_ptr<ClientRecord> client)
        : token_(token), client_(std::move(client)) {}
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;
    virtual ~Sending() = default;

    // `on_sent` runs from now on when a message has been sent, and there may be room for another.
    void set_on_sent(std::function<void()> on_sent) { on_sent_ = std::move(on_sent); }
    // Whether the client cannot be reached any more.
    virtual bool failed() const = 0;
    // Ends everything in flight in bounded time. on_sent does not run any more.
    void close();

    // Replies with a status, and a text or another payload. Both do nothing where the client is
    // gone.
    void reply(const ItemId& id, wire::Status status, std::string payload = {});
    void refuse(const ItemId& id, const wire::Refusal& refusal);

    // Where the client can see the value of an open get itself: replies so, and returns true.
    virtual bool show(const PendingGet&) { return false; }
    // Queues an open get.
    void add(PendingGet get) { values_.push_back(std::move(get)); }
    // Whether one more message may be sent.
    bool has_room() const { return messages_ < kMaxMessages && bytes_ < kMaxBytes; }
    // Sends the next segment of the gets that were added; false where there is none.
    bool send_next();
    // Drops the gets of this request. Messages that are in flight are still sent.
    void abandon(std::uint64_t request);

    // Messages that are not completed: they wait for the client.
    std::uint64_t in_flight() const { return messages_; }
    // Gets of which there is more to send.
    std::size_t values() const { return values_.size(); }

  protected:
    // A reply, or a segment of one: pins the value, or owns the bytes, that it is sent from.
    struct Message {
        wire::ReplyHeader header{};
        std::vector<ucp_dt_iov_t> pieces;
        std::shared_ptr<const Region> value;
        std::string payload;

        std::uint64_t bytes() const { return header.length; }
    };

    // Sends it, and calls sent() once its memory is not used any more; that may be inside this
    // call. False where the client is gone. Throws where it cannot be sent.
    virtual bool send(Message message) = 0;
    virtual void end() = 0;
    void sent(std::uint64_t bytes, bool arrived);

  private:
    void give(Message message);

    const wire::Token token_;
    const std::shared_ptr<ClientRecord> client_;
    std::function<void()> on_sent_;
    std::deque<PendingGet> values_;
    std::uint64_t messages_ = 0;
    std::uint64_t bytes_ = 0;  // of these messages
};

}  // namespace ucxstore

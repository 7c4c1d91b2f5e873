// Replies to a client, and values that it reads, in segments: what is sent, and in which order.
// What carries it is a class derived from this one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sessions/client_record.hpp"
#include "sessions/pending_get.hpp"
#include "sessions/request_log.hpp"

namespace ucxstore::sessions {

// On the session's thread.
class Sending {
  public:
    // The most that is in flight to one client: enough to keep any lane full, and few enough
    // mappings and descriptors. The rest waits as keys.
    static constexpr std::uint64_t kMaxMessages = 128;
    static constexpr std::uint64_t kMaxBytes = 256ull << 20;

    Sending(const protocol::Token& token, std::shared_ptr<ClientRecord> client)
        : token_(token), client_(std::move(client)), log_(client_) {}
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;
    virtual ~Sending() = default;

    // `on_sent` runs from now on when a message has been sent, and there may be room for another.
    void set_on_sent(std::function<void()> on_sent) { on_sent_ = std::move(on_sent); }
    // `load` has another thread read what comes next of a get, and gives that back by go_on().
    using Load = std::function<void(PendingGet)>;
    void set_load(Load load) { load_ = std::move(load); }
    // What fails from now on is the source's, and not a storage's.
    void set_reads_through() { reads_through_ = true; }
    // Whether the client cannot be reached any more.
    virtual bool failed() const = 0;
    // Whether something that was in flight has not reached it.
    bool broke_off() const { return broke_off_; }
    // Ends everything in flight in bounded time. on_sent does not run any more.
    void close();

    RequestLog& log() { return log_; }
    // Counts the latency of a request that has just come, and is no get: until its reply has gone.
    // `line`: its line in that log.
    void time(const ItemId& id, base::RequestKind kind, std::uint32_t line = 0);
    // Replies with a status, and a text or another payload. These do nothing where the client is
    // gone. `timed`: of a get.
    void reply(const ItemId& id, protocol::Status status, std::string payload = {},
               Timed timed = {});
    // Replies with what is about the server itself, which the counters leave out: else whoever
    // watches them would see himself.
    void tell(const ItemId& id, std::string about);
    void refuse(const ItemId& id, const protocol::Refusal& refusal, Timed timed = {});
    // Replies with a failure of a storage, or the source.
    void fail(const ItemId& id, const std::exception& error, Timed timed = {});

    // Takes in what the client has sent until now. False where there is no room for all of it.
    virtual bool catch_up() = 0;

    // Where the client can see the value of an open get itself: replies so, and returns true.
    virtual bool show(const PendingGet&) { return false; }
    // Queues an open get.
    void add(PendingGet get);
    // Sends what comes next of one that was loaded, before all others.
    void go_on(PendingGet get) { values_.push_front(std::move(get)); }
    // Whether one more message of a value may be sent.
    bool has_room() const {
        return messages_ < kMaxMessages && in_flight_.bytes < kMaxBytes && !is_full();
    }
    // Whether the client has taken so little of its replies that no more of them may be made.
    bool is_full() const { return client_->account()->is_full(Held::reply_bytes); }
    // Since when it has taken nothing of what is in flight; nullopt where nothing is.
    std::optional<base::TimePoint> stands_still() const {
        return messages_ == 0 ? std::nullopt : std::optional(last_sent_);
    }
    // Sends the next segment of the gets that were added. `none` where there is none, or it takes
    // memory that the session may not have before others of its segments have gone.
    enum class Sent { some, none, no_room };
    Sent send_next();
    // Drops the gets of this request. Messages that are in flight are still sent.
    void abandon(std::uint64_t request);
    // Whether the client was told that it has failed. Clients abandon such requests, too.
    bool has_failed(std::uint64_t request) const;

    // Messages that are not completed: they wait for the client.
    std::uint64_t in_flight() const { return messages_; }
    // Gets of which there is more to send.
    std::size_t values() const { return values_.size() + waiting_.size(); }

  protected:
    struct Amount {
        std::uint64_t bytes = 0;
        std::uint64_t read = 0;     // those of them that were read for it
        std::uint64_t held = 0;     // the memory that it takes besides
        std::uint64_t fetched = 0;  // those of a value that a source has brought
        Timed timed{};              // set where it ends a reply
        bool counts = true;         // whether `bytes` are in the counters once they are sent
    };
    // A reply, or a segment of one: pins the value, or owns the bytes, that it is sent from.
    struct Message {
        protocol::ReplyHeader header{};
        std::vector<ucp_dt_iov_t> pieces;
        std::shared_ptr<const memory::Region> value;
        std::string payload;
        bool was_read = false;
        bool was_fetched = false;
        // Set where the pieces are yet to be read from the value.
        std::shared_ptr<Reading> reading;
        Timed timed{};
        bool counts = true;

        Amount amount() const;
    };

    // The CRC32C of its bytes. Of what lies in a value's own memory, the sums of whole blocks are
    // kept with the value.
    static std::uint32_t sum_of(const Message& message);
    // Whether it can send what is read meanwhile. Then it notes what it could not read in the
    // message's `reading`, before it calls sent().
    virtual bool reads_as_it_sends() const { return false; }
    // Values whose pieces are shorter than that, on average, are copied into each message.
    virtual std::uint64_t least_piece() const { return 0; }

    // Sends it, and calls sent() once its memory is not used any more; that may be inside this
    // call. False where the client is gone. Throws where it cannot be sent.
    virtual bool send(Message message) = 0;
    virtual void end() = 0;
    void sent(Amount amount, bool arrived, const std::shared_ptr<Reading>& reading = nullptr);
    // Counts a message of the carrier's own, with so many bytes, as a reply is: a client may leave
    // these, too. The second once it has gone; then the carrier sees to it that the session works.
    Amount begin_other(std::uint64_t bytes);
    void other_sent(Amount amount);
    // Gives back what is in flight: sent() is not called any more.
    void forget_in_flight();

  private:
    void give(Message message);
    Message make_reply(const ItemId& id, protocol::Status status, std::string payload, Timed timed);
    void begin_message(Amount amount);
    void reply(const ItemId& id, protocol::Status status, std::string payload, Timed timed,
               std::optional<base::Failing> why);
    // How long the request took until now, where it was timed.
    Timed end_of(const ItemId& id, protocol::Status status);
    void end_message(Amount amount, const std::shared_ptr<Reading>& reading);

    const protocol::Token token_;
    const std::shared_ptr<ClientRecord> client_;
    RequestLog log_;
    std::function<void()> on_sent_;
    Load load_;
    bool reads_through_ = false;
    bool broke_off_ = false;
    std::deque<PendingGet> values_;
    std::list<PendingGet> waiting_;  // until what is in flight of them is read
    std::unordered_map<ItemId, Timed, HashItemId> timed_;  // requests that are no gets
    std::deque<std::uint64_t> failed_;                     // requests, the last of them
    std::uint64_t messages_ = 0;
    Amount in_flight_;             // in these messages
    base::TimePoint last_sent_{};  // when one of them was completed, or the first was given
};

}  // namespace ucxstore::sessions

// Conversation: a client's operations at one server, whatever carries their messages. How many
// values are under way, what waits, and how an operation ends. No I/O.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/operation.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::client {

// An operation is registered while replies to it are taken. Once it has ended, it is complete as
// soon as nothing uses its memory any more: Operation::active is 0. On one thread, but for what
// says otherwise.
class Conversation {
  public:
    using Pointer = std::shared_ptr<Operation>;

    // What carries the messages.
    class Carrier {
      public:
        // Whether nothing can be sent any more.
        virtual bool failed() const = 0;
        // Sends a message, or does nothing where failed(). Throws.
        virtual void send_request(Outgoing request) = 0;
        // Sends a set's only value as a file, where it has one that can go. Throws.
        virtual bool send_file(const Pointer&) { return false; }
        // Calls send_values(): some wait.
        virtual void pump() = 0;
        // No more replies to the operation are taken: what uses its memory is to end soon.
        virtual void stop(const Operation&) {}
        // An operation has timed out, and its memory is still used. `text` says what was late.
        virtual void on_stuck(const std::string&) {}
        // Ends the connection, and so calls end(): the server has said that it ends.
        virtual void shut(const char* why) = 0;

      protected:
        ~Carrier() = default;
    };

    Conversation(const protocol::Token& token, std::string peer, Carrier& carrier)
        : token_(token), peer_(std::move(peer)), carrier_(carrier) {}
    Conversation(const Conversation&) = delete;
    Conversation& operator=(const Conversation&) = delete;

    const protocol::Token& token() const { return token_; }   // any thread
    const std::string& peer() const { return peer_; }         // any thread
    bool leaving() const { return leaving_.load(kRelaxed); }  // any thread: the server ends
    bool empty() const { return all_.empty(); }

    // Registers an operation, and sends what it asks. One that cannot be sent is complete.
    void start(const Pointer& operation);
    void cancel(const Pointer& operation);
    // Sends one more request of an operation.
    void request(const Operation& operation, Outgoing outgoing);
    // Has its values wait to be sent, and sends what there is room for.
    void queue_values(const Pointer& operation);
    // Sends values that wait: `send(operation, item, index)` sends the next segment of an item, or
    // returns false where it has no room for that now.
    template <typename Send>
    void send_values(Send send);
    // What goes before the next segment of a value, which has `segment` bytes at the most.
    protocol::ValueHeader value_header(const Operation& operation, std::uint32_t index,
                                       std::uint64_t segment) const;

    // nullptr where there is none, or it has ended.
    Pointer find(std::uint64_t id) const;
    // A reply has come. The operation that it is to; nullptr where that has ended, or the reply
    // says no more than that the server works on it, or ends.
    Pointer on_reply(const protocol::ReplyHeader& header);
    // Some of its bytes have come or gone, or the server has said that it works on it.
    void moved(Operation& operation);
    // A segment of a reply is in its item's memory.
    void segment_arrived(const Pointer& operation, Item& item, std::uint64_t length);
    // Nothing more comes of an item.
    void item_done(const Pointer& operation, Item& item);
    // Takes no more replies to the operation, and tells the server so if it has failed. Needs no
    // memory.
    void finish(const Pointer& operation);
    // Completes it if it has ended, and nothing uses its memory any more.
    void released(const Pointer& operation);

    // Ends what has stood still for too long. Returns when the next look is due.
    base::TimePoint tick(base::TimePoint now);
    // Fails all operations, and those that are started from now on. The carrier has failed. Needs
    // no memory.
    void end(base::ErrorKind kind, std::string_view why);
    // Reports that, before: `lost` where this side did not want it.
    void report_end(bool lost, std::string_view why) const;
    // Why the connection is to end, where handling a message has thrown this.
    static std::string cause_of(const base::Error& error);

    // The operations that are due, and when the next one may be.
    struct Due {
        std::vector<Pointer> operations;
        base::TimePoint next = base::TimePoint::max();
    };
    // Those that ended this long ago, and whose memory is still used.
    Due unreleased(base::TimePoint now, base::Clock::duration time) const;
    // Starts that time anew.
    void wait_anew(base::TimePoint now);
    // Completes them as leaked, but for those whose memory is not used any more.
    void leak(const std::vector<Pointer>& operations, std::string_view why);

  private:
    static constexpr auto kRelaxed = std::memory_order_relaxed;

    struct One {
        Pointer operation;
        base::TimePoint ended = base::TimePoint::max();
    };

    // An item whose value is still to be sent, or the rest of it.
    struct Value {
        Pointer operation;
        std::uint32_t item;
    };

    void begin(const Pointer& operation);
    std::optional<Value> next_value();
    void count_unanswered(Operation& operation, std::int64_t values);
    void fail_value(const Value& value, const std::exception& error);
    Due late(base::TimePoint now) const;
    base::TimePoint time_out(base::TimePoint now);
    base::TimePoint hang_up(base::TimePoint now);

    const protocol::Token token_;
    const std::string peer_;
    Carrier& carrier_;
    std::unordered_map<std::uint64_t, One> all_;  // by id
    std::size_t registered_ = 0;                  // of them
    base::TimePoint last_moved_ = base::TimePoint::min();
    std::deque<Value> values_;
    std::uint64_t unanswered_ = 0;  // values, as Operation::unanswered, of all operations
    bool sending_ = false;
    std::string cause_ = "the connection is closed";
    std::atomic<bool> leaving_ = false;
    base::TimePoint idle_since_ = base::TimePoint::max();  // while it is leaving
};

template <typename Send>
void Conversation::send_values(Send send) {
    if (sending_) {
        return;  // a send that completed at once; the loop below goes on
    }
    struct Sending {
        explicit Sending(bool& flag) : flag(flag) { flag = true; }
        ~Sending() { flag = false; }
        bool& flag;
    } sending(sending_);
    while (const auto value = next_value()) {
        const Pointer& operation = value->operation;
        Item& item = operation->items[value->item];
        const bool begins = item.next == 0;
        try {
            // Before it is sent: the answer may come inside the call.
            count_unanswered(*operation, begins ? 1 : 0);
            if (!send(operation, item, value->item)) {
                count_unanswered(*operation, begins ? -1 : 0);
                break;
            }
        } catch (const std::exception& error) {  // no exception may pass through UCX
            fail_value(*value, error);
            continue;
        }
        if (begins) {  // until now it has only waited for others
            operation->moved(base::Clock::now());
        }
        if (item.next >= item.memory->size()) {
            values_.pop_front();
        }
    }
}

}  // namespace ucxstore::client

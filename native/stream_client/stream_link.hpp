// A link to a server over a connected stream socket: messages of the wire protocol. Their bytes go
// between the socket and the caller's memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/conversation.hpp"
#include "client/link.hpp"
#include "protocol/sums.hpp"
#include "stream/stream_socket.hpp"
#include "threads/event_thread.hpp"
#include "threads/spin.hpp"

namespace ucxstore::stream_client {

// What uses a caller's memory is a system call of the thread, or a message that has not gone: both
// end as soon as the operation does. So nothing is ever written to memory that was given back.
class StreamLink : public client::Link,
                   public std::enable_shared_from_this<StreamLink>,
                   protected client::Conversation::Carrier,
                   protected stream::StreamSocket::Handler {
  public:
    // `due` is told of each deadline, on the thread: tick() is to be called by then. Throws as
    // StreamSocket().
    StreamLink(std::shared_ptr<threads::EventThread> thread, base::Fd socket,
               const protocol::Token& token, std::string peer,
               std::function<void(base::TimePoint)> due, const stream::Protection& protection = {});

    const std::string& peer() const override { return conversation_.peer(); }
    void submit(const std::shared_ptr<client::Operation>& operation) override;
    void submit_later(const std::shared_ptr<client::Operation>& operation) override;
    bool wait_for(client::Operation& operation, std::chrono::milliseconds time) override;
    void cancel(const std::shared_ptr<client::Operation>& operation) override;
    void close() override;
    bool failed() const override { return closed_; }
    bool leaving() const override { return conversation_.leaving(); }
    std::vector<std::string> lanes() override { return {lane()}; }
    bool checked() const override { return checked_ || encrypted_; }
    bool encrypted() const override { return encrypted_; }

    // What follows is for the thread.

    // Begins to read.
    void begin();
    // Looks at deadlines; returns when the next look is due.
    virtual base::TimePoint tick(base::TimePoint now);
    // Fails what is under way; `lost` where this side did not want it.
    void end(base::ErrorKind kind, std::string_view message, bool lost);
    // Whether no operation waits any more for its memory to be given back.
    bool released() const { return conversation_.empty(); }
    // Completes those that do, as leaked.
    virtual void abandon() {}

  protected:
    using Pointer = std::shared_ptr<client::Operation>;

    virtual const char* lane() const { return "tcp"; }
    // What ends with the connection, and why it has ended where the server has.
    virtual void clear() {}
    virtual const char* why_gone() const { return "the server is gone"; }
    // Whether the reply is one of those that only this kind of link gets. Throws Error(protocol).
    virtual bool take_reply(const Pointer&, const protocol::ReplyHeader&) { return false; }
    // A message that is no reply. Throws Error(protocol).
    virtual void take_other(stream::InMessage message);
    // Sends the next segment; false where there is no room for it yet.
    virtual bool send_segment(const Pointer& operation, client::Item& item, std::uint32_t index);

    // Starts the operation and runs `then`, here or on the thread; fails it where that has ended.
    template <typename Then>
    void start(const Pointer& operation, const Then& then) {
        const auto here = [&] {
            // The caller comes back at once, to wait and to read the replies.
            start_in_turn(operation, operation->for_a_thread());
            then();
        };
        if (!thread_->stand_in(here) &&
            !thread_->post([self = shared_from_this(), operation, then] {
                self->start_in_turn(operation, false);
                then();
            })) {
            fail_closed(*operation);
        }
    }
    void send(stream::OutMessage message);
    void send_request(client::Outgoing outgoing) override;
    void stop(const client::Operation& operation) override;
    void pump() override;

    const std::shared_ptr<threads::EventThread> thread_;
    const std::function<void(base::TimePoint)> due_;
    std::atomic<bool> closed_ = false;

    // On the thread:
    stream::StreamSocket socket_;
    client::Conversation conversation_;

  private:
    // The item that the body goes to which is being read.
    struct Filling {
        Pointer operation;
        protocol::ReplyHeader header;
        protocol::Sum sum;
    };

    void start_in_turn(const Pointer& operation, bool caller_reads);
    void fail_closed(client::Operation& operation) const;
    void begin_turn();
    bool is_in_time() const { return base::Clock::now() < turn_end_; }
    bool reads_on(std::uint64_t bytes) override { return bytes < kTurnBytes && is_in_time(); }
    bool sends_on() override { return is_in_time(); }
    // A turn: sends what waits, and reads what has come; returns whether there may be more to read.
    bool move_once(bool reads);
    void move();
    void post_move();
    // Has the thread send what waits for another turn, and not for room.
    void go_on();
    void watch(bool readable);
    void rest();
    bool begin_reading(const client::Operation& operation);
    void end_reading(bool more);
    void shut(const char* why) override { end(base::ErrorKind::server_lost, why, false); }
    std::optional<std::vector<ucp_dt_iov_t>> place(stream::FrameKind kind, std::string_view header,
                                                   std::uint64_t body_bytes) override;
    void take(stream::InMessage message) override;
    void on_reply(const stream::InMessage& message);
    void on_filled(const Filling& filled, std::uint32_t sum);
    protocol::Sum take_sums(std::string_view& header) const;
    void fail_altered(client::Operation& operation, const client::Item& item) const;
    void altered(const Pointer& operation, const client::Item& item);

    const bool checked_;
    const bool encrypted_;
    std::optional<Filling> filling_;
    bool waits_ = false;  // for the socket to take more
    // Others come between turns: callers, tasks and deadlines.
    base::TimePoint turn_end_ = base::TimePoint::min();
    bool move_posted_ = false;

    // A caller that waits reads the replies itself. Then the thread does not, nor is it woken for
    // them; nor for a moment after that, as callers that wait come one after the other.
    bool caller_reads_ = false;
    threads::Spin spin_;          // the caller's
    bool caller_writes_ = false;  // the caller waits for room in the socket, too
    bool watched_ = false;        // by the thread,
    bool watched_writable_ = false;
    base::TimePoint rests_until_ = base::TimePoint::min();  // and again from then on
};

}  // namespace ucxstore::stream_client

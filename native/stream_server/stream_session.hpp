// A session on a connected stream socket: messages of the wire protocol. Their bytes go between
// the socket and a storage's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sessions/receiver.hpp"
#include "sessions/session.hpp"
#include "sessions/yielding.hpp"
#include "stream/stream_socket.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::stream_server {

// On the thread that makes it.
class StreamSession : public std::enable_shared_from_this<StreamSession>,
                      public sessions::Yielding,
                      protected sessions::Receiver,
                      protected stream::StreamSocket::Handler {
  public:
    // `thread` is where it is, and runs what comes later; `look` is called after each event: time
    // for a tick().
    struct Parts {
        std::shared_ptr<threads::EventThread> thread;
        sessions::Turns& turns;
        base::Fd socket;
        const sessions::Service& service;
        const protocol::Token& token;
        const sessions::Admitted& client;
        std::function<void()> look;
    };
    // Takes the socket of `parts`. `refuse` makes its own. Throws as StreamSocket().
    using MakeRefuse = std::function<stream::StreamSocket::Refuse(sessions::ClientRecord&)>;
    StreamSession(Parts& parts, const stream::Protection& protection, const char* lane = "tcp",
                  const MakeRefuse& refuse = nullptr);
    StreamSession(const StreamSession&) = delete;
    StreamSession& operator=(const StreamSession&) = delete;
    ~StreamSession() override { close(); }

    // Ends it where the client is gone or has stalled. Returns when the next look is due.
    base::TimePoint tick(base::TimePoint now);
    void close();
    // It has failed, as for want of memory: the next tick() ends it.
    void lose() noexcept { client_->doom(); }
    // Called when the session is to end, at its next tick().
    void set_on_doom(std::function<void()> on_doom) { client_->set_on_doom(std::move(on_doom)); }
    // As Session::leave().
    void leave() { session_.leave(); }
    bool closed() const { return closed_; }
    bool busy() const { return session_.busy(); }
    sessions::ClientRecord& record() override { return *client_; }
    bool may_yield() override { return !busy(); }
    void ask() override { leave(); }
    void end() override { close(); }
    // Tells the client, if it has been shown the arena of a shelf, that this has gone.
    virtual void drop_arena(std::uint64_t, std::uint32_t) {}

  protected:
    // As Sending::show().
    virtual bool show(const sessions::PendingGet&) { return false; }
    // What ends with the session.
    virtual void clear() {}
    // A message that is no request. Throws Error(protocol).
    virtual void take_other(stream::InMessage& message);
    std::optional<std::vector<ucp_dt_iov_t>> place(stream::FrameKind kind, std::string_view header,
                                                   std::uint64_t body_bytes) override;
    void take(stream::InMessage message) override;
    void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                 memory::Write write) override;
    void drop(Parcel parcel) override;

    // Sends a message that is no reply.
    void send_other(stream::OutMessage message);
    // Replies to a get without its bytes.
    void refuse(const sessions::PendingGet& get, const protocol::Refusal& refusal);

    const std::shared_ptr<threads::EventThread> thread_;
    const std::shared_ptr<sessions::ClientRecord> client_;
    sessions::Turns::Seat seat_;
    stream::StreamSocket socket_;

  private:
    class StreamSending;

    // The body of a value's segment that is coming.
    struct Body {
        std::uint64_t length = 0;
        std::unique_ptr<Sink> sink;
        bool bounces = false;  // where the value has no memory
        bool is_coming = false;
    };

    std::vector<ucp_dt_iov_t> place_value(std::string_view header, std::uint64_t body_bytes);
    std::vector<ucp_dt_iov_t> target();
    void on_request(const stream::InMessage& message);
    void end_body(bool arrived);
    protocol::Sum take_sums(std::string_view& header) const;
    bool reads() const { return session_.reads() && !socket_.awaits_target(); }
    bool reads_on(std::uint64_t) override {
        return !seat_.is_over() && reads() && !client_->doomed();
    }
    bool sends_on() override { return !seat_.is_over(); }
    // Something has come, or there is room for what has waited.
    void on_event();
    // A turn: sends what has waited, reads what has come. True if there is more to do at once.
    bool move();
    // Says what on_event() is to be called for.
    void listen();
    // Reads what has come for the time of a turn, though it is not its turn. False where that is
    // not all, or there is no room for it.
    bool catch_up();
    void fail(const std::exception& error);
    void send(stream::OutMessage message);

    const std::function<void()> look_;
    const bool checked_;
    const std::shared_ptr<StreamSending> sending_;

  protected:
    sessions::Session session_;

  private:
    Body body_;
    std::vector<std::byte> bounce_;  // where a body goes that has no memory; kept for a moment
    base::TimePoint bounce_until_ = base::TimePoint::max();
    bool closed_ = false;
    bool waits_ = false;   // for the socket to take more
    bool reads_ = true;    // whether on_event() is called for what comes,
    bool writes_ = false;  // and for room
};

}  // namespace ucxstore::stream_server

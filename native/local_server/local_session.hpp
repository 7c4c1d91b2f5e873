// A session on a Unix socket, with a client of this host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local/local_socket.hpp"
#include "local_server/seen_upload.hpp"
#include "local_server/showings.hpp"
#include "local_server/shown_root.hpp"
#include "sessions/session.hpp"
#include "sessions/yielding.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::local_server {

// On the thread that makes it.
class LocalSession : public std::enable_shared_from_this<LocalSession>,
                     public sessions::Yielding,
                     private local::LocalSocket::Handler {
  public:
    // `thread` is where it is, and runs what comes later; `life` tells clients that it does. `look`
    // is called after each event: time for a tick().
    LocalSession(std::shared_ptr<threads::EventThread> thread, sessions::Turns& turns, int life,
                 base::Fd socket, const sessions::Service& service, const protocol::Token& token,
                 const sessions::Admitted& client, std::function<void()> look);
    LocalSession(const LocalSession&) = delete;
    LocalSession& operator=(const LocalSession&) = delete;
    ~LocalSession() override;

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
    void note_seen() override;
    // Not while the client has anything pinned: what is left of the session then keeps its place.
    bool may_yield() override;
    void ask() override { leave(); }
    void end() override { close(); }
    // Tells the client, if it has been shown the arena of a shelf, that this has gone.
    void drop_arena(std::uint64_t shelf, std::uint32_t number);

  private:
    class LocalSending;
    class PinHolder;

    // A segment in the upload is a parcel until it is copied, or dropped.
    class UploadReceiver : public sessions::Receiver {
      public:
        explicit UploadReceiver(LocalSession& session) : session_(session) {}
        // A parcel for a segment, and what becomes of it: it is dropped unless it is received or
        // `kept` for later.
        Parcel begin(const local::RoomHeader& segment);
        void settle(bool kept);
        void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                     memory::Write write) override;
        void drop(Parcel parcel) override;

      private:
        LocalSession& session_;
        local::RoomHeader* current_ = nullptr;
    };

    std::optional<std::vector<ucp_dt_iov_t>> place(local::FrameKind kind, std::string_view header,
                                                   std::uint64_t body_bytes) override;
    void take(local::InMessage message) override;
    bool reads_on(std::uint64_t) override {
        return !seat_.is_over() && session_.reads() && !client_->doomed();
    }
    bool sends_on() override { return !seat_.is_over(); }
    // Something has come, or there is room for what has waited.
    void on_event();
    // A turn: sends what has waited, reads what has come. True if there is more to do at once.
    bool move();
    // Says what on_event() is to be called for.
    void listen();
    // Reads what has come, whosever turn it is, for the time of one. False where that is not all,
    // or there is no room for it.
    bool catch_up();
    void on_value(const local::InMessage& message);
    void on_file(local::InMessage& message);
    Showings::OnDrop on_drop();
    std::shared_ptr<shared::Holder> make_holder();
    void send(local::OutMessage message);
    // The same of what is no reply.
    void send_other(local::OutMessage message);

    const std::shared_ptr<threads::EventThread> thread_;
    const std::shared_ptr<sessions::ClientRecord> client_;
    const std::function<void()> look_;
    sessions::Turns::Seat seat_;
    const bool takes_files_;  // whether it takes over what comes in files
    local::LocalSocket socket_;
    Showings showings_;
    std::unique_ptr<ShownRoot> shown_root_;  // nullptr where there is nothing to see
    std::optional<SeenUpload> upload_;
    UploadReceiver receiver_;
    const std::shared_ptr<LocalSending> sending_;
    sessions::Session session_;
    bool closed_ = false;
    bool root_sent_ = false;
    bool waits_ = false;      // for the socket to take more
    bool reads_ = true;       // whether on_event() is called for what comes,
    bool writes_ = false;     // and for room
    std::uint64_t seen_ = 0;  // by the client, when that was looked at last
};

}  // namespace ucxstore::local_server

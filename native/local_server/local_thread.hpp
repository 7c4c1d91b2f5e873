// A thread of a server with the sessions on sockets: of clients of its own host, and of others.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local_server/local_session.hpp"
#include "sessions/yielding.hpp"
#include "shared/life.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::local_server {

class LocalThread : public sessions::YieldingThread {
  public:
    // Throws Error(resource).
    LocalThread(const sessions::Service& service, int index);
    LocalThread(const LocalThread&) = delete;
    LocalThread& operator=(const LocalThread&) = delete;
    ~LocalThread() override { close(); }

    // What follows is for any thread.

    // Starts a session on a connected socket, and tells the client so with `answer`. Whoever held
    // the socket to do that later might be the last to close it, and so wait for the closes of all
    // descriptors that it brought unread. Throws Error(connect).
    void attach(base::Fd socket, const protocol::Token& token, const sessions::Admitted& client,
                std::string_view answer = {});
    // The same, of a client of any host, on a socket of TCP.
    void attach_remote(base::Fd socket, const protocol::Token& token,
                       const sessions::Admitted& client, std::string_view answer,
                       const stream::Protection& protection);
    // The number of clients.
    std::size_t sessions();
    // Whether anything is under way with a client.
    bool busy();
    // As TaskThread::post().
    bool post(threads::Task task) { return thread_->post(std::move(task)); }
    // Tells all clients that the server ends.
    void leave();
    // Ends all sessions, and the thread.
    void close();

  private:
    // A class of its own, as the thread runs before a class derived from Driver is complete.
    class Driver final : public threads::TaskThread::Driver {
      public:
        explicit Driver(LocalThread& owner) : owner_(owner) {}
        void tick(base::TimePoint now) override { owner_.tick(now); }
        base::TimePoint deadline() const override {
            return owner_.turns_.empty() ? owner_.deadline_ : base::TimePoint::min();
        }
        void failed(const char*) noexcept override { owner_.lose_all(); }

      private:
        LocalThread& owner_;
    };

    using Make = std::function<std::shared_ptr<stream_server::StreamSession>(
        stream_server::StreamSession::Parts)>;
    void begin(base::Fd socket, const protocol::Token& token, const sessions::Admitted& client,
               std::string_view answer, const Make& make);
    void visit(const Visitor& visitor) override;
    void tick(base::TimePoint now);
    void look(stream_server::StreamSession* session);
    // As StreamSession::tick(); a failure loses the session.
    base::TimePoint tick_of(stream_server::StreamSession& session, base::TimePoint now) noexcept;
    void lose_all() noexcept;

    const sessions::Service service_;
    Driver driver_{*this};
    // On the thread:
    std::optional<shared::Life> life_;
    sessions::Turns turns_;
    std::vector<std::shared_ptr<stream_server::StreamSession>> sessions_;
    base::TimePoint deadline_ = base::TimePoint::max();
    bool ended_ = false;

    std::shared_ptr<threads::EventThread> thread_;  // sessions hold it, too
    std::shared_ptr<void> drops_;                   // what tells of arenas that have gone
};

}  // namespace ucxstore::local_server

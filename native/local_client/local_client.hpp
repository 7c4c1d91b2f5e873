// The links of a process to servers over sockets, of its own host and of others, and the thread
// that they share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "local_client/local_link.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::local_client {

class LocalClient {
  public:
    // Throws Error(resource).
    LocalClient();
    LocalClient(const LocalClient&) = delete;
    LocalClient& operator=(const LocalClient&) = delete;
    ~LocalClient() { close(); }

    // Takes a connected socket over. Throws Error(connect).
    std::shared_ptr<LocalLink> attach(base::Fd socket, const protocol::Token& token,
                                      const std::string& peer);
    // The same, of TCP.
    std::shared_ptr<stream_client::StreamLink> attach_remote(base::Fd socket,
                                                             const protocol::Token& token,
                                                             const std::string& peer,
                                                             const stream::Protection& protection);
    // Ends all links, and the thread.
    void close();

  private:
    // A class of its own, as the thread runs before a class derived from Driver is complete.
    class Driver final : public threads::TaskThread::Driver {
      public:
        explicit Driver(LocalClient& owner) : owner_(owner) {}
        void tick(base::TimePoint now) override { owner_.tick(now); }
        base::TimePoint deadline() const override { return owner_.deadline_; }
        void failed(const char* why) noexcept override { owner_.end_all(why); }

      private:
        LocalClient& owner_;
    };

    template <typename Make>
    auto begin(Make make);
    void tick(base::TimePoint now);
    void end_all(const char* why) noexcept;

    Driver driver_{*this};
    // On the thread:
    std::vector<std::shared_ptr<stream_client::StreamLink>> links_;
    base::TimePoint deadline_ = base::TimePoint::max();
    bool ended_ = false;

    const std::shared_ptr<threads::WorkerPool> pool_ = std::make_shared<threads::WorkerPool>();
    std::shared_ptr<threads::EventThread> thread_;  // links hold both, too
};

}  // namespace ucxstore::local_client

// A thread of a server with the sessions of clients that need UCX. Each has a context of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "ucx/peer_thread.hpp"
#include "ucx_server/ucx_session.hpp"

namespace ucxstore::ucx_server {

class UcxThread : public ucx::PeerThread, public sessions::YieldingThread {
  public:
    UcxThread(const sessions::Service& service, const ucx::Options& options, bool polling,
              int index);
    ~UcxThread() override;

    // Starts a session; its endpoint exists on return. Throws Error(connect).
    void attach(std::unique_ptr<ucx::Worker> worker, base::Fd fd, const protocol::Token& token,
                const std::string& address, const sessions::Admitted& client);
    std::size_t sessions() { return peers(); }
    // As TaskThread::post().
    bool post(threads::Task task) { return progress()->post(std::move(task)); }

  private:
    void visit(const Visitor& visitor) override;

    // Shared, as whoever holds a thread may keep it longer than the Server lives.
    const sessions::Service service_;
    sessions::Turns turns_;  // on the thread
};

}  // namespace ucxstore::ucx_server

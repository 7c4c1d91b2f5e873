// Server: progress threads, each with a UCX context of its own, and the sessions on them.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "server/local_thread.hpp"
#include "server/ucx_session.hpp"
#include "ucx/peer_thread.hpp"

namespace ucxstore {

class ServerThread : public PeerThread {
  public:
    ServerThread(const Service& service, const Options& options, bool polling, int index);
    ~ServerThread();

    // Starts a session; its endpoint exists on return. Throws Error(connect).
    void attach(std::unique_ptr<Worker> worker, Fd fd, const wire::Token& token,
                const std::string& address, const std::string& peer);
    std::size_t sessions() { return peers(); }

  private:
    // Shared, as whoever holds a thread may keep it longer than the Server lives.
    const Service service_;
};

class Server {
  public:
    Server(Storages storages, int threads, const Options& options, bool polling, bool read_only);
    ~Server();

    const std::shared_ptr<ServerThread>& thread(int index) const {
        return threads_.at(static_cast<std::size_t>(index));
    }
    const std::shared_ptr<LocalThread>& local_thread(int index) const {
        return local_threads_.at(static_cast<std::size_t>(index));
    }
    const Counters& counters() const { return *service_.counters; }
    // The bytes of values in scratch spaces.
    std::uint64_t scratch_bytes() const {
        const auto& spaces = service_.storages.spaces;
        return spaces == nullptr ? 0 : spaces->held();
    }
    std::size_t sessions();
    // Waits until nothing is under way; false where `timeout` is not enough for that.
    bool drain(std::chrono::milliseconds timeout);
    void close(std::chrono::milliseconds timeout);
    // In a forked child: the parent's UCX objects must not be touched, not even to free them.
    void abandon();

  private:
    const int pid_;
    const Service service_;
    std::vector<std::shared_ptr<ServerThread>> threads_;
    std::vector<std::shared_ptr<LocalThread>> local_threads_;
};

}  // namespace ucxstore

// The server's end: progress threads, each with a worker of its own, and the sessions on them.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "session.hpp"

namespace ucxstore {

class ServerThread : public Progress::Driver {
  public:
    ServerThread(Backing& backing, Counters& counters, const Options& options, bool polling,
                 bool read_only, int index);
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;
    ~ServerThread() override;

    const std::string& address() const { return address_; }

    // Starts a session; its endpoint exists on return. Throws Error(connect).
    void attach(Fd fd, const wire::Token& token, const std::string& address,
                const std::string& peer);
    bool busy();
    std::size_t sessions();
    void close(std::chrono::milliseconds timeout);

  private:
    void tick(TimePoint now) override;
    TimePoint deadline() const override;

    static ucs_status_t on_request(void* self, const void* header, std::size_t header_size,
                                   void* data, std::size_t size, const ucp_am_recv_param_t* param);
    static ucs_status_t on_value(void* self, const void* header, std::size_t header_size,
                                 void* data, std::size_t size, const ucp_am_recv_param_t* param);
    template <typename Header, typename Handle>
    ucs_status_t dispatch(const void* header, std::size_t header_size, Handle handle);

    void end(const wire::Token& token);
    void begin(Fd fd, const wire::Token& token, const std::string& address,
               const std::string& peer);

    Backing& backing_;
    Counters& counters_;
    const bool read_only_;
    std::unique_ptr<Worker> worker_;
    const std::string address_;
    std::map<wire::Token, std::shared_ptr<Session>> sessions_;
    std::vector<wire::Token> doomed_;  // sessions to end outside UCX's callbacks
    bool closed_ = false;
    std::mutex closing_;
    std::unique_ptr<Progress> progress_;
};

class Server {
  public:
    Server(std::shared_ptr<Backing> backing, int threads, const Options& options, bool polling,
           bool read_only);
    ~Server();

    ServerThread& thread(int index) { return *threads_.at(static_cast<std::size_t>(index)); }
    const Counters& counters() const { return counters_; }
    std::size_t sessions();
    // Waits until nothing is under way; false where the time was not enough.
    bool drain(std::chrono::milliseconds timeout);
    void close(std::chrono::milliseconds timeout);
    // In a forked child: the parent's UCX objects must not be touched, not even to free them.
    void abandon();

  private:
    const int pid_;
    std::shared_ptr<Backing> backing_;
    Counters counters_;
    std::vector<std::unique_ptr<ServerThread>> threads_;
};

}  // namespace ucxstore

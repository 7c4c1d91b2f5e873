// The client's end: one worker and progress thread, and connections to any number of servers.
#pragma once

#include <chrono>
#include <map>
#include <memory>

#include "connection.hpp"

namespace ucxstore {

class Client : public Progress::Driver {
  public:
    Client(const Options& options, bool polling);
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() override;

    const std::string& address() const { return address_; }

    // Takes the control connection over and makes the endpoint. Throws Error(connect).
    std::shared_ptr<Connection> attach(Fd fd, const wire::Token& token, const std::string& address,
                                       const std::string& peer);

    // None of these blocks. An operation always completes, also where the client is closed.
    void submit(const std::shared_ptr<Connection>& connection,
                const std::shared_ptr<Operation>& operation);
    void cancel(const std::shared_ptr<Connection>& connection,
                const std::shared_ptr<Operation>& operation);
    void close(const std::shared_ptr<Connection>& connection);

    std::vector<std::string> lanes(const std::shared_ptr<Connection>& connection);
    void close(std::chrono::milliseconds timeout);

  private:
    void tick(TimePoint now) override;
    TimePoint deadline() const override { return deadline_; }
    void begin(const std::shared_ptr<Connection>& connection, Fd fd);
    static ucs_status_t on_reply(void* self, const void* header, std::size_t header_size,
                                 void* data, std::size_t size, const ucp_am_recv_param_t* param);

    std::unique_ptr<Worker> worker_;
    const std::string address_;
    std::map<wire::Token, std::shared_ptr<Connection>> connections_;
    // Connections to close outside UCX's callbacks, and why.
    struct Doomed {
        wire::Token token;
        ErrorKind kind;
        std::string message;
    };
    std::vector<Doomed> doomed_;
    TimePoint deadline_ = TimePoint::max();
    bool closed_ = false;
    std::mutex closing_;
    std::unique_ptr<Progress> progress_;
};

}  // namespace ucxstore

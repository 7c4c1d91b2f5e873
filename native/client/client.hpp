// The client's end: one progress thread, and connections to any number of servers.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "client/connection.hpp"

namespace ucxstore {

class Client : public Progress::Driver {
  public:
    Client(const Options& options, bool polling);
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() override;

    // A worker for one connection: made before the handshake, as its address is part of that.
    std::unique_ptr<Worker> open();
    // For one that came to nothing.
    void discard(std::unique_ptr<Worker> worker);
    // Takes the worker and the control connection over and makes the endpoint. Throws
    // Error(connect).
    std::shared_ptr<Connection> attach(std::unique_ptr<Worker> worker, Fd fd,
                                       const wire::Token& token, const std::string& address,
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

    const std::shared_ptr<const Context> context_;
    std::vector<std::shared_ptr<Connection>> connections_;
    TimePoint deadline_ = TimePoint::max();
    bool closed_ = false;     // on the progress thread
    bool destroyed_ = false;  // under closing_
    std::mutex closing_;
    std::unique_ptr<Progress> progress_;
};

}  // namespace ucxstore

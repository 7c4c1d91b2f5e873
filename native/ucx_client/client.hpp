// Client: one progress thread, and connections to any number of servers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ucx/peer_thread.hpp"
#include "ucx_client/connection.hpp"

namespace ucxstore::ucx_client {

class Client : public ucx::PeerThread {
  public:
    Client(const ucx::Options& options, bool polling);

    // Takes the worker and the control connection over and makes the endpoint. Throws
    // Error(connect).
    std::shared_ptr<Connection> attach(std::unique_ptr<ucx::Worker> worker, base::Fd fd,
                                       const protocol::Token& token, const std::string& address,
                                       const std::string& peer,
                                       Connection::Integrity integrity = false);

    // None of these blocks. An operation always completes, even if the client is closed. submit()
    // is as Link::submit().
    void submit(const std::shared_ptr<Connection>& connection,
                const std::shared_ptr<client::Operation>& operation);
    void cancel(const std::shared_ptr<Connection>& connection,
                const std::shared_ptr<client::Operation>& operation);
    using ucx::PeerThread::close;
    void close(const std::shared_ptr<Connection>& connection);

    std::vector<std::string> lanes(const std::shared_ptr<Connection>& connection);
};

}  // namespace ucxstore::ucx_client

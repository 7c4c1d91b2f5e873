#include "ucx_client/client.hpp"

#include <utility>

#include "base/status.hpp"
#include "client/batch.hpp"

namespace ucxstore::ucx_client {

Client::Client(const ucx::Options& options, bool polling)
    : ucx::PeerThread(options, polling, "ucxstore", "the client is closed") {}

std::shared_ptr<Connection> Client::attach(std::unique_ptr<ucx::Worker> worker, base::Fd fd,
                                           const protocol::Token& token, const std::string& address,
                                           const std::string& peer,
                                           Connection::Integrity integrity) {
    std::shared_ptr<Connection> connection;
    adopt(std::move(worker), std::move(fd), [&](std::unique_ptr<ucx::Worker> taken) {
        connection =
            std::make_shared<Connection>(std::move(taken), token, address, peer, integrity);
        return connection;
    });
    return connection;
}

void Client::submit(const std::shared_ptr<Connection>& connection,
                    const std::shared_ptr<client::Operation>& operation) {
    if (!operation->gets.empty()) {
        operation->requests = client::request_gets(*operation);
    }
    if (!progress()->post([connection, operation] { connection->start(operation); })) {
        operation->fail(base::ErrorKind::server_lost, {connection->peer(), ": ", closed_text()});
        operation->complete();
    }
}

void Client::cancel(const std::shared_ptr<Connection>& connection,
                    const std::shared_ptr<client::Operation>& operation) {
    threads::post_or_wait(*progress(), [connection, operation] { connection->cancel(operation); });
}

void Client::close(const std::shared_ptr<Connection>& connection) {
    threads::post_or_wait(*progress(),
                          [connection] { connection->shut("the connection was closed"); });
}

std::vector<std::string> Client::lanes(const std::shared_ptr<Connection>& connection) {
    std::vector<std::string> lanes;
    progress()->post_and_wait([&] { lanes = connection->lanes(); });
    return lanes;
}

}  // namespace ucxstore::ucx_client

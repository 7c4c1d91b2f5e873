// A link over UCX: a connection, and the client that drives it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/link.hpp"
#include "ucx_client/client.hpp"

namespace ucxstore::ucx_client {

class UcxLink : public client::Link {
  public:
    UcxLink(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection)
        : client_(std::move(client)), connection_(std::move(connection)) {}

    // The connection is closed where there is no memory for its link.
    static std::shared_ptr<UcxLink> make(const std::shared_ptr<Client>& client,
                                         const std::shared_ptr<Connection>& connection) {
        try {
            return std::make_shared<UcxLink>(client, connection);
        } catch (...) {
            client->close(connection);
            throw;
        }
    }

    const std::string& peer() const override { return connection_->peer(); }
    void submit(const std::shared_ptr<client::Operation>& operation) override {
        client_->submit(connection_, operation);
    }
    void cancel(const std::shared_ptr<client::Operation>& operation) override {
        client_->cancel(connection_, operation);
    }
    void close() override { client_->close(connection_); }
    bool failed() const override { return connection_->failed(); }
    bool leaving() const override { return connection_->leaving(); }
    std::vector<std::string> lanes() override { return client_->lanes(connection_); }
    bool checked() const override { return connection_->checked(); }
    bool encrypted() const override { return false; }

  private:
    const std::shared_ptr<Client> client_;
    const std::shared_ptr<Connection> connection_;
};

}  // namespace ucxstore::ucx_client

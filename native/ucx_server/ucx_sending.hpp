// Sends to a client over UCX. The memory that a message is sent from stays until UCX has let go of
// it, whatever becomes of the session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sessions/sending.hpp"
#include "ucx/endpoint.hpp"

namespace ucxstore::ucx_server {

// Each message in flight keeps this alive.
class UcxSending : public sessions::Sending, public std::enable_shared_from_this<UcxSending> {
  public:
    UcxSending(ucx::Worker& worker, const protocol::Token& token,
               std::shared_ptr<sessions::ClientRecord> client)
        : sessions::Sending(token, std::move(client)), worker_(worker) {}

    // Makes the endpoint. Not inside UCX's callbacks. Throws Error(connect).
    void connect(const std::string& address);
    bool connected() const { return endpoint_ != nullptr; }
    // From now on all messages have checksums.
    void check() { checked_ = true; }
    bool checks() const { return checked_; }
    std::vector<std::string> lanes() const { return endpoint_->lanes(); }
    bool failed() const override { return connected() && endpoint_->failed(); }
    bool catch_up() override;

  private:
    class InFlight;

    // Where UCX copies the bytes on this thread, and their sum need not be known beforehand.
    bool reads_as_it_sends() const override { return worker_.moves_only_in_progress && !checked_; }
    bool send(Message message) override;
    void end() override;

    ucx::Worker& worker_;
    std::unique_ptr<ucx::Endpoint> endpoint_;
    bool checked_ = false;
};

}  // namespace ucxstore::ucx_server

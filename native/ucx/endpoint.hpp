// UCX endpoint (ucp_ep) to one peer, with peer error handling.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "ucx/worker.hpp"

namespace ucxstore::ucx {

class Endpoint {
  public:
    // Throws Error(connect) for an address that is none of a UCX like this one.
    static void check_address(const Worker& worker, const std::string& address);

    // `address` is the peer's UCX worker address. Throws Error(connect).
    Endpoint(Worker& worker, const std::string& address);
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    ~Endpoint() { close(); }

    // nullptr once the endpoint has failed or is closed: UCX must not be called with it again.
    ucp_ep_h get() const { return failed_ ? nullptr : handle_; }
    bool failed() const { return failed_; }  // any thread
    const std::string& cause() const { return cause_; }

    // The lanes that UCX has chosen: "posix/memory", "tcp/lo"...
    std::vector<std::string> lanes() const;

    // Closes by force, without telling the peer: completes every operation on it as cancelled,
    // after which not a byte is written to their memory. Does not block; safe to call again.
    void close();

  private:
    static void on_error(void* argument, ucp_ep_h endpoint, ucs_status_t status);

    Worker& worker_;
    ucp_ep_h handle_ = nullptr;
    std::atomic<bool> failed_ = false;
    std::string cause_;
};

}  // namespace ucxstore::ucx

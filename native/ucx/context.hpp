// UCX context (ucp_context): its options, and how it is started.
#pragma once

#include <map>
#include <string>

#include "base/handle.hpp"
#include "ucx/transports.hpp"

namespace ucxstore::ucx {

// UCX options by name without "UCX_", e.g. {"TLS": "tcp"}.
using Options = std::map<std::string, std::string>;

// The device of connections within this host.
inline constexpr const char* kLoopback = "lo";

// Throws what the constructor of Context throws for them, and starts nothing.
void check_options(const Options& options);
// Whether the environment or `options` have the option `name`. What they say goes.
bool is_given(const std::string& name, const Options& options);
// The option that names the network devices that UCX uses.
inline constexpr const char* kDevices = "NET_DEVICES";

class Context {
  public:
    // Our defaults give way to the environment, and the environment to `options`. UCX uses the
    // network device `device`, and adapters for RDMA, unless these name others. Whatever they say,
    // it uses shared memory only if `memory` is on.
    // Throws Error(argument) that names an option UCX does not know or take.
    explicit Context(const Options& options, const std::string& device = kLoopback,
                     SharedMemory memory = SharedMemory::off);
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();
    ucp_context_h get() const { return handle_.get(); }

    // Whether UCX remembers registered memory. Where it does not (its hooks on mmap are off), it
    // crashes as an endpoint is closed by force under a contiguous rendezvous send (openucx/ucx
    // issue 11467); Request::send avoids such sends there.
    bool has_registration_cache() const { return has_registration_cache_; }

  private:
    base::ContextHandle handle_;
    bool has_registration_cache_ = false;
};

}  // namespace ucxstore::ucx

// UCX context (ucp_context): its options, and how it is started.
#pragma once

#include <map>
#include <string>

#include "base/handle.hpp"

namespace ucxstore {

// UCX options by name without "UCX_", e.g. {"TLS": "tcp"}.
using Options = std::map<std::string, std::string>;

class Context {
  public:
    // Our defaults give way to the environment, and the environment to `options`.
    // Throws Error(argument) that names an option UCX does not know or take.
    explicit Context(const Options& options);
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();
    ucp_context_h get() const { return handle_.get(); }

    // Whether UCX remembers registered memory. Where it does not (its hooks on mmap are off), it
    // crashes as an endpoint is closed by force under a contiguous rendezvous send (openucx/ucx
    // issue 11467); Request::send avoids such sends there.
    bool has_registration_cache() const { return has_registration_cache_; }

  private:
    ContextHandle handle_;
    bool has_registration_cache_ = false;
};

}  // namespace ucxstore

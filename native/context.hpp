// ucp_context: configuration and start.
#pragma once

#include <map>
#include <string>

#include "handle.hpp"

namespace ucxstore {

// UCX options by name without "UCX_", e.g. {"TLS": "tcp"}.
using Options = std::map<std::string, std::string>;

class Context {
  public:
    // Our defaults give way to the environment, and the environment to `options`.
    // Throws Error(argument) that names an option UCX does not know or take.
    explicit Context(const Options& options);
    ucp_context_h get() const { return handle_.get(); }
    void leak() { static_cast<void>(handle_.release()); }

  private:
    ContextHandle handle_;
};

}  // namespace ucxstore

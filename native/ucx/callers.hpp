// Who connects to the worker that a server has made for a client.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ucx/network.hpp"

namespace ucxstore::ucx {

struct Callers {
    std::vector<Host> hosts;
    // The user of the client, where that is a process of this host.
    std::optional<uid_t> user;
};

// The client at the other end of the control connection `control`, whose UCX address is `address`:
// it has come by an authenticated handshake. Throws Error(connect) where the kernel does not tell
// whose process a client of this host is.
Callers callers_of(int control, const std::string& address);

}  // namespace ucxstore::ucx

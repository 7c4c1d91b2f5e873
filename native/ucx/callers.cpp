#include "ucx/callers.hpp"

#include <algorithm>
#include <iterator>

#include "base/status.hpp"
#include "ucx/address.hpp"

namespace ucxstore::ucx {
namespace {

const Host kLoopbackV4{.v6 = false, .bytes = {127, 0, 0, 1}};
const Host kLoopbackV6{.v6 = true, .bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

// Those that the client's UCX has beside the one of its control connection: another network, or
// another version of IP.
std::vector<Host> hosts_of(const std::string& address) {
    try {
        return WorkerAddress::read(address).hosts();
    } catch (const base::Error&) {
        return {};  // of a UCX that we cannot read, or malformed, which shows elsewhere
    }
}

}  // namespace

Callers callers_of(int control, const std::string& address) {
    Callers callers;
    const auto peer = peer_end(control);
    const bool is_here = !peer || is_of_this_host(peer->host);
    if (is_here) {
        callers.user = user_at_other_end(control);
        if (!callers.user) {
            throw base::Error(
                base::ErrorKind::connect,
                "the kernel does not say whose process this client of the same host is");
        }
        callers.hosts = {kLoopbackV4, kLoopbackV6};
    }
    if (peer) {
        callers.hosts.push_back(peer->host);
    }
    // None of this host's for a client that is elsewhere: no process here is to pass as it.
    std::ranges::copy_if(hosts_of(address), std::back_inserter(callers.hosts),
                         [&](const Host& host) { return is_of_this_host(host) == is_here; });
    return callers;
}

}  // namespace ucxstore::ucx

// Fence: the hosts whose packets the kernel lets through to a TCP socket that listens.
//
// The kernel has two ways to do so, and not every process may use both:
// - A filter (SO_ATTACH_FILTER) drops what comes from elsewhere. Linux has long let every user set
//   one; newer releases ask for CAP_NET_ADMIN where the socket is one of TCP.
// - A key for signatures (TCP_MD5SIG_EXT, RFC 2385) is for a prefix of addresses: the kernel drops
//   what comes from there unsigned. Nobody knows our keys, so nobody signs. Every user may set
//   them, where the kernel has them at all.
#pragma once

#include <string>
#include <vector>

#include "base/handle.hpp"
#include "ucx/network.hpp"

namespace ucxstore::ucx {

// A range of addresses: those that begin with the first `bits` bits of `host`.
struct Prefix {
    Host host;
    unsigned bits = 0;

    auto operator<=>(const Prefix&) const = default;
};

// The fewest prefixes that hold all addresses of a version of IP but those of `hosts`; sorted.
std::vector<Prefix> all_but(const std::vector<Host>& hosts, bool v6);

class Fence {
  public:
    // Shuts the socket `fd`, whose address is `end`, to all. Throws Error(connect) where the kernel
    // has no way that this process may use.
    Fence(int fd, const End& end);

    // Lets the packets of these hosts in, and no others, from now on. Connections go on. Throws
    // Error(connect); then no more hosts get in than before.
    void let_in(const std::vector<Host>& hosts);

    // A descriptor of the socket that is ours: UCX may close its own one.
    int fd() const { return fd_.get(); }
    const End& end() const { return end_; }

  private:
    // Whether the kernel has done so; else errno says why.
    bool set_filter(const std::vector<Host>& hosts) const;
    bool set_keys(const std::vector<Host>& hosts);

    base::Fd fd_;
    End end_;
    bool has_keys_ = false;
    std::vector<Prefix> keyed_;  // sorted
};

// Shuts the socket `fd` to all. Throws Error(argument) where it is none of IP's, and as Fence().
void shut(int fd);

}  // namespace ucxstore::ucx

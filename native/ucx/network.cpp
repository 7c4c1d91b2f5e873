#include "ucx/network.hpp"

#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/handle.hpp"
#include "base/status.hpp"

namespace ucxstore::ucx {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::optional<End> end_of(const sockaddr* address) {
    if (address == nullptr) {
        return std::nullopt;
    }
    const auto read = [](const void* packed, std::size_t size, in_port_t port) {
        const auto host = Host::of({static_cast<const char*>(packed), size});
        return End{*host, ntohs(port)};
    };
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        return read(&v4->sin_addr, 4, v4->sin_port);
    }
    if (address->sa_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        return read(&v6->sin6_addr, 16, v6->sin6_port);
    }
    return std::nullopt;
}

template <typename Ask>
std::optional<End> ask(int fd, Ask function) {
    sockaddr_storage storage{};
    socklen_t size = sizeof(storage);
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    return function(fd, address, &size) == 0 ? end_of(address) : std::nullopt;
}

// The name of the device that has the address; empty where none has.
std::string find_device(const Host& host) {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) {
        base::throw_errno("asking for the network's devices", base::ErrorKind::connect);
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, &freeifaddrs);
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
        const auto end = end_of(one->ifa_addr);
        if (end && end->host == host) {
            const std::string_view name = one->ifa_name;
            return std::string(name.substr(0, name.find(':')));  // without an address's label
        }
    }
    return {};
}

// What the kernel knows of the TCP socket from `from` to `to`, of this network namespace.
std::optional<inet_diag_msg> socket_from(const End& from, const End& to) {
    struct {
        nlmsghdr header;
        inet_diag_req_v2 request;
    } question{};
    question.header.nlmsg_len = sizeof(question);
    question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    auto& request = question.request;
    request.sdiag_family = from.host.v6 ? AF_INET6 : AF_INET;
    request.sdiag_protocol = IPPROTO_TCP;
    request.idiag_states = ~0u;
    request.id.idiag_sport = htons(from.port);
    request.id.idiag_dport = htons(to.port);
    std::memcpy(request.id.idiag_src, from.host.bytes.data(), from.host.bytes.size());
    std::memcpy(request.id.idiag_dst, to.host.bytes.data(), to.host.bytes.size());
    request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

    // The kernel answers before send() returns, so nothing here waits.
    const base::Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    alignas(nlmsghdr) std::array<char, 4096> answer;
    if (!netlink || send(netlink.get(), &question, sizeof(question), 0) < 0) {
        return std::nullopt;
    }
    const ssize_t got = recv(netlink.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
    constexpr auto kLeast = static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)));
    if (got < kLeast || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
        return std::nullopt;
    }
    inet_diag_msg found;
    std::memcpy(&found, NLMSG_DATA(header), sizeof(found));
    return found;
}

}  // namespace

std::optional<Host> Host::of(std::string_view packed) {
    Host host;
    if (packed.size() == 16 && std::memcmp(packed.data(), kMapped.data(), kMapped.size()) == 0) {
        packed.remove_prefix(kMapped.size());
    }
    if (packed.size() != 4 && packed.size() != 16) {
        return std::nullopt;
    }
    host.v6 = packed.size() == 16;
    std::memcpy(host.bytes.data(), packed.data(), packed.size());
    return host;
}

bool Host::is_loopback() const {
    const auto zeros = bytes.begin() + 15;
    return v6 ? std::all_of(bytes.begin(), zeros, [](auto byte) { return byte == 0; }) &&
                    bytes[15] == 1
              : bytes[0] == 127;
}

std::optional<End> own_end(int fd) { return ask(fd, &getsockname); }

std::optional<End> peer_end(int fd) { return ask(fd, &getpeername); }

bool is_of_this_host(const Host& host) { return host.is_loopback() || !find_device(host).empty(); }

std::string device_of(const Host& host) {
    std::string name = find_device(host);
    if (name.empty()) {
        throw base::Error(base::ErrorKind::connect,
                          "no network device has the address of this connection");
    }
    return name;
}

std::optional<uid_t> user_at_other_end(int fd) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    const auto own = own_end(fd);
    const auto peer = peer_end(fd);
    if (!own || !peer) {
        const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
                           credentials.pid != 0;
        return known ? std::optional(credentials.uid) : std::nullopt;
    }
    // One that its process has closed belongs to nobody, which the kernel shows as user 0. Where
    // there is none any more, the kernel looks for one that listens at that end.
    const auto found = socket_from(*peer, *own);
    const bool is_held = found && found->idiag_state != TCP_LISTEN && found->idiag_inode != 0;
    return is_held ? std::optional<uid_t>(found->idiag_uid) : std::nullopt;
}

}  // namespace ucxstore::ucx

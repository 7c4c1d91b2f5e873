// The hosts at the two ends of a connection, the device it goes over, and whose process is there.
#pragma once

#include <sys/types.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ucxstore::ucx {

// An IP address. One of IPv4 that is mapped into IPv6 is one of IPv4.
struct Host {
    bool v6 = false;
    std::array<std::uint8_t, 16> bytes{};  // of an IPv4 address, the first 4

    auto operator<=>(const Host&) const = default;
    bool is_loopback() const;
    // The bytes as they stand in packets: 4 or 16. std::nullopt for any other number of them.
    static std::optional<Host> of(std::string_view packed);
};

// One end of a TCP connection.
struct End {
    Host host;
    std::uint16_t port = 0;

    auto operator<=>(const End&) const = default;
};

// The ends of the connection `fd`. std::nullopt where it is none over IP.
std::optional<End> own_end(int fd);
std::optional<End> peer_end(int fd);

// Whether the address is one of this host, as this network namespace has it.
bool is_of_this_host(const Host& host);

// The network device that has this address. Throws Error(connect) where none has it.
std::string device_of(const Host& host);

// The user whose process made the other end of the connection `fd`, if that is a process of this
// network namespace and still there: of a Unix socket, as it was connected. std::nullopt where the
// kernel does not tell.
std::optional<uid_t> user_at_other_end(int fd);

}  // namespace ucxstore::ucx

#include "ucx/fence.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "base/status.hpp"

namespace ucxstore::ucx {
namespace {

// ---- filters ----

// The word of a packet's IP address, in the order of this processor, as a filter's loads give it.
std::uint32_t word(const Host& host, std::size_t index) {
    std::uint32_t packed;
    std::memcpy(&packed, host.bytes.data() + 4 * index, sizeof(packed));
    return ntohl(packed);
}

// A program that lets the packets of `hosts` pass, by the source of their IP headers. Accepted
// connections inherit it, so it passes all of their packets, and not those that begin one alone.
std::vector<sock_filter> program(const std::vector<Host>& hosts) {
    constexpr sock_filter kPass = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
    constexpr sock_filter kDrop = BPF_STMT(BPF_RET | BPF_K, 0);
    constexpr std::uint32_t kIp = static_cast<std::uint32_t>(SKF_NET_OFF);
    constexpr std::uint32_t kSourceV4 = kIp + 12;
    constexpr std::uint32_t kSourceV6 = kIp + 8;
    std::vector<sock_filter> v4;
    std::vector<sock_filter> v6;
    for (const Host& host : hosts) {
        if (host.v6) {
            for (unsigned i = 0; i < 4; ++i) {
                // Past the rest of this address where it is another one.
                const auto past = static_cast<std::uint8_t>(2 * (3 - i) + 1);
                v6.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSourceV6 + 4 * i));
                v6.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word(host, i), 0, past));
            }
            v6.push_back(kPass);
        } else {
            v4.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSourceV4));
            v4.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word(host, 0), 0, 1));
            v4.push_back(kPass);
        }
    }
    std::vector<sock_filter> all = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIp),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4, 1, 0),
        BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(v4.size() + 1)),
    };
    all.insert(all.end(), v4.begin(), v4.end());
    all.push_back(kDrop);
    all.insert(all.end(), v6.begin(), v6.end());
    all.push_back(kDrop);
    return all;
}

// ---- keys ----

unsigned width(bool v6) { return v6 ? 128 : 32; }

bool bit_of(const Host& host, unsigned index) {
    return (host.bytes[index / 8] >> (7 - index % 8) & 1) != 0;
}

bool is_in(const Host& host, const Prefix& prefix) {
    for (unsigned i = 0; i < prefix.bits; ++i) {
        if (bit_of(host, i) != bit_of(prefix.host, i)) {
            return false;
        }
    }
    return host.v6 == prefix.host.v6;
}

void collect(const std::vector<Host>& hosts, Prefix prefix, std::vector<Prefix>& found) {
    if (std::ranges::none_of(hosts, [&](const Host& host) { return is_in(host, prefix); })) {
        found.push_back(prefix);
        return;
    }
    const unsigned bit = prefix.bits++;
    if (bit < width(prefix.host.v6)) {
        collect(hosts, prefix, found);
        prefix.host.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80 >> bit % 8);
        collect(hosts, prefix, found);
    }
}

// As a socket of IPv6 takes it where `mapped`.
sockaddr_storage packed(const Host& host, bool mapped) {
    sockaddr_storage storage{};
    if (host.v6 || mapped) {
        auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
        v6->sin6_family = AF_INET6;
        if (host.v6) {
            std::memcpy(&v6->sin6_addr, host.bytes.data(), 16);
        } else {
            v6->sin6_addr.s6_addr[10] = v6->sin6_addr.s6_addr[11] = 0xff;
            std::memcpy(&v6->sin6_addr.s6_addr[12], host.bytes.data(), 4);
        }
    } else {
        auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
        v4->sin_family = AF_INET;
        std::memcpy(&v4->sin_addr, host.bytes.data(), 4);
    }
    return storage;
}

constexpr std::uint16_t kKeyBytes = 16;

// Sets a key that nobody knows, or removes it. Whether the kernel has done so; else errno says why.
bool set_key(int fd, const Prefix& prefix, bool mapped, bool wanted) {
    tcp_md5sig key{};
    const sockaddr_storage address = packed(prefix.host, mapped);
    std::memcpy(&key.tcpm_addr, &address, sizeof(address));
    key.tcpm_flags = TCP_MD5SIG_FLAG_PREFIX;
    key.tcpm_prefixlen = static_cast<std::uint8_t>(prefix.bits);
    if (wanted) {
        key.tcpm_keylen = kKeyBytes;
        if (getrandom(key.tcpm_key, kKeyBytes, 0) != kKeyBytes) {
            return false;
        }
    }
    return setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG_EXT, &key, sizeof(key)) == 0;
}

[[noreturn]] void fail(const std::string& why) {
    throw base::Error(
        base::ErrorKind::connect,
        "the kernel does not let this process keep others from UCX's TCP sockets (" + why +
            "), so UCX is not used; docs/security.md says what UCXSTORE_GATE=off risks");
}

std::string reason(const char* option) { return std::string(option) + ": " + std::strerror(errno); }

}  // namespace

std::vector<Prefix> all_but(const std::vector<Host>& hosts, bool v6) {
    std::vector<Prefix> found;
    collect(hosts, {.host = {.v6 = v6}}, found);
    std::ranges::sort(found);
    return found;
}

Fence::Fence(int fd, const End& end) : fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)), end_(end) {
    if (!fd_) {
        base::throw_errno("duplicating a descriptor of UCX's", base::ErrorKind::connect);
    }
    if (set_filter({})) {
        return;
    }
    const std::string why = reason("SO_ATTACH_FILTER");
    if (!set_keys({})) {
        fail(why + "; " + reason("TCP_MD5SIG_EXT"));
    }
    has_keys_ = true;
}

void Fence::let_in(const std::vector<Host>& hosts) {
    if (!(has_keys_ ? set_keys(hosts) : set_filter(hosts))) {
        fail(reason(has_keys_ ? "TCP_MD5SIG_EXT" : "SO_ATTACH_FILTER"));
    }
}

bool Fence::set_filter(const std::vector<Host>& hosts) const {
    std::vector<sock_filter> code = program(hosts);
    const sock_fprog program{.len = static_cast<unsigned short>(code.size()),
                             .filter = code.data()};
    return setsockopt(fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

// A host is shut out while any key's prefix has it. So the new keys come before the old ones go: at
// no time does one get in that is in neither `hosts` nor those before.
bool Fence::set_keys(const std::vector<Host>& hosts) {
    std::vector<Prefix> wanted = all_but(hosts, false);
    if (end_.host.v6) {
        std::ranges::copy(all_but(hosts, true), std::back_inserter(wanted));  // sorted: v6 is last
    }
    const auto set = [&](const std::vector<Prefix>& these, const std::vector<Prefix>& but,
                         bool is_wanted) {
        return std::ranges::all_of(these, [&](const Prefix& prefix) {
            return std::ranges::binary_search(but, prefix) ||
                   set_key(fd(), prefix, end_.host.v6, is_wanted);
        });
    };
    if (!set(wanted, keyed_, true) || !set(keyed_, wanted, false)) {
        return false;
    }
    keyed_ = std::move(wanted);
    return true;
}

void shut(int fd) {
    const auto end = own_end(fd);
    base::require(end.has_value(), "it is no socket of IP's");
    Fence(fd, *end);
}

}  // namespace ucxstore::ucx

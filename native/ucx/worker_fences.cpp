#include "ucx/worker_fences.hpp"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/status.hpp"
#include "ucx/address.hpp"

namespace ucxstore::ucx {
namespace {

// Calls `visit` with each descriptor of this process.
void for_each_descriptor(const std::function<void(int)>& visit) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
    if (folder == nullptr) {
        base::throw_errno("listing this process's descriptors", base::ErrorKind::connect);
    }
    const int own = dirfd(folder.get());
    while (const dirent* entry = readdir(folder.get())) {
        char* end = nullptr;
        const long fd = std::strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0' && fd != own) {
            visit(static_cast<int>(fd));
        }
    }
}

bool has(int fd, int option, int value) {
    int found = 0;
    socklen_t size = sizeof(found);
    return getsockopt(fd, SOL_SOCKET, option, &found, &size) == 0 && found == value;
}

bool is_tcp(int fd) { return has(fd, SO_PROTOCOL, IPPROTO_TCP); }

void for_each_listener(const std::function<void(int, ino_t)>& visit) {
    for_each_descriptor([&](int fd) {
        struct stat about{};
        if (has(fd, SO_ACCEPTCONN, 1) && is_tcp(fd) && fstat(fd, &about) == 0) {
            visit(fd, about.st_ino);
        }
    });
}

std::string packed(std::uint16_t port) {
    return {static_cast<char>(port >> 8), static_cast<char>(port & 0xff)};
}

// The ports of the sockets on which UCX listens for the worker of this address, as they stand in
// it. std::nullopt where it is of a UCX that we cannot read.
std::optional<std::vector<std::string>> ports_of(const std::string& address) {
    std::vector<std::string> ports;
    try {
        for (const auto& one : WorkerAddress::read(address).transports) {
            if (one.name == transport_name("tcp")) {
                ports.emplace_back(one.interface);
            }
        }
    } catch (const base::Error&) {
        return std::nullopt;
    }
    return ports;
}

bool is_off() {
    const char* const said = std::getenv("UCXSTORE_GATE");
    const std::string_view value = said == nullptr ? "" : said;
    if (!value.empty() && value != "off") {
        throw base::Error(base::ErrorKind::argument, "UCXSTORE_GATE is '" + std::string(value) +
                                                         "'; it takes \"off\", or nothing");
    }
    return value == "off";
}

}  // namespace

WorkerFences::Before::Before() {
    for_each_listener([&](int, ino_t inode) { sockets_.push_back(inode); });
    std::ranges::sort(sockets_);
}

WorkerFences::WorkerFences(const Before& before, const std::string& address) {
    if (is_off()) {
        return;
    }
    const auto ports = ports_of(address);
    std::vector<std::pair<int, End>> found;
    for_each_listener([&](int fd, ino_t inode) {
        const auto own = own_end(fd);
        if (own && !std::ranges::binary_search(before.sockets_, inode)) {
            const std::string port = packed(own->port);
            const bool is_ours = ports ? std::ranges::find(*ports, port) != ports->end()
                                       : address.find(port) != std::string::npos;
            if (is_ours) {
                found.emplace_back(fd, *own);
            }
        }
    });
    const auto is_found = [&](const std::string& port) {
        return std::ranges::any_of(
            found, [&](const auto& one) { return packed(one.second.port) == port; });
    };
    if (ports && !std::ranges::all_of(*ports, is_found)) {
        throw base::Error(base::ErrorKind::connect,
                          "a socket of UCX's is not among this process's descriptors");
    }
    for (const auto& [fd, end] : found) {
        fences_.emplace_back(fd, end);
    }
    if (any_unaccepted() || !accepted().empty()) {
        throw Knocked();
    }
}

void WorkerFences::open(std::vector<Host> hosts, std::optional<uid_t> user) {
    hosts_ = std::move(hosts);
    user_ = fences_.empty() ? std::nullopt : user;
    let_in(hosts_);
    is_open_ = true;
}

void WorkerFences::shut() {
    let_in({});
    is_open_ = false;
    if (!broken_) {
        user_.reset();
    }
}

bool WorkerFences::may_look(bool events) noexcept {
    if (broken_) {
        return false;
    }
    try {
        return are_the_users(events);
    } catch (const std::exception&) {  // for want of a descriptor, say
        broken_ = true;
        return false;
    }
}

bool WorkerFences::are_the_users(bool events) {
    // UCX may have taken in the event of a connection that is here, so that alone does not tell.
    if (!events && !any_unaccepted() && accepted().empty()) {
        if (!is_open_) {
            let_in(hosts_);
            is_open_ = true;
        }
        return false;
    }
    if (is_open_) {
        let_in({});
        is_open_ = false;
    }
    if (any_unaccepted()) {
        return false;  // UCX's own thread is about to
    }
    const std::vector<int> connections = accepted();
    broken_ = !std::ranges::all_of(connections, [&](int fd) {
        const auto peer = peer_end(fd);
        return peer && (!is_of_this_host(peer->host) || user_at_other_end(fd) == user_);
    });
    if (broken_) {
        return false;
    }
    if (!connections.empty()) {
        user_.reset();  // it is the client's, and UCX makes one for each peer
    }
    return true;
}

void WorkerFences::let_in(const std::vector<Host>& hosts) {
    for (Fence& one : fences_) {
        one.let_in(hosts);
    }
}

// Whether UCX has still to accept a connection that the kernel has taken for it.
bool WorkerFences::any_unaccepted() const {
    return std::ranges::any_of(fences_, [](const Fence& one) {
        tcp_info info{};
        socklen_t size = sizeof(info);
        // Of a listening socket this is the length of its queue.
        return getsockopt(one.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
               info.tcpi_unacked > 0;
    });
}

std::vector<int> WorkerFences::accepted() const {
    std::vector<int> found;
    if (fences_.empty()) {
        return found;
    }
    for_each_descriptor([&](int fd) {
        if (!is_tcp(fd) || has(fd, SO_ACCEPTCONN, 1)) {
            return;
        }
        const auto own = own_end(fd);
        const bool is_ours = own && std::ranges::any_of(fences_, [&](const Fence& one) {
                                 return one.end() == *own;
                             });
        if (is_ours) {
            found.push_back(fd);
        }
    });
    return found;
}

}  // namespace ucxstore::ucx

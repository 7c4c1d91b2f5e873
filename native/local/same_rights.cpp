#include "local/same_rights.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "base/handle.hpp"

namespace ucxstore::local {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, which is newer than some headers

template <typename Value>
bool read_option(int socket, int option, Value& value) {
    socklen_t size = sizeof(value);
    return getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 && size == sizeof(value);
}

bool same(const std::string& one, const char* other) {
    struct stat first{};
    struct stat second{};
    return stat(one.c_str(), &first) == 0 && stat(other, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

bool has_our_rights(int socket) {
    ucred peer{};
    int descriptor = -1;
    if (!read_option(socket, SO_PEERCRED, peer) || peer.uid != geteuid() || peer.pid <= 0 ||
        !read_option(socket, kPeerPidfd, descriptor)) {
        return false;
    }
    const base::Fd process(descriptor);
    const std::string folder = "/proc/" + std::to_string(peer.pid);
    const bool as_we = same(folder + "/ns/mnt", "/proc/self/ns/mnt") && same(folder + "/root", "/");
    // It lives, so its number was not another process's meanwhile.
    return as_we && syscall(SYS_pidfd_send_signal, process.get(), 0, nullptr, 0) == 0;
}

}  // namespace ucxstore::local

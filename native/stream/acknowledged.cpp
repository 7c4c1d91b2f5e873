#include "stream/acknowledged.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <optional>

namespace ucxstore::stream {
namespace {

std::optional<tcp_info> info_of(int fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return std::nullopt;
    }
    return info;
}

bool all_acknowledged(int fd) {
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

}  // namespace

Acknowledged::Acknowledged(int fd, base::Clock::duration silence)
    : fd_(fd), silence_(silence), is_tcp_(info_of(fd).has_value()) {}

bool Acknowledged::look(base::TimePoint now) {
    if (now < look_at_) {
        return true;
    }
    const auto info = info_of(fd_);
    const bool all = !info || all_acknowledged(fd_);
    look_at_ = all ? base::TimePoint::max() : now + silence_ / 5;
    // An acknowledgement may be long ago because nothing was sent since: what waits for room is
    // repeated, or asked about, at ever longer intervals. One such question may stay unanswered,
    // as the kernel answers two a second at most.
    const bool waits =
        !all && (info->tcpi_probes > 1 ||
                 (info->tcpi_unacked > 0 && info->tcpi_last_data_sent < info->tcpi_last_ack_recv));
    if (!waits) {
        waits_since_ = base::TimePoint::max();
        return true;
    }
    const base::TimePoint last = now - std::chrono::milliseconds(info->tcpi_last_ack_recv);
    if (waits_since_ == base::TimePoint::max() || waits_since_ < last) {
        waits_since_ = now;
    }
    return now - waits_since_ < silence_;
}

}  // namespace ucxstore::stream

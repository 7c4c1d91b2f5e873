// Whether a peer still acknowledges the bytes that are sent to it over TCP.
#pragma once

#include <chrono>

#include "base/clock.hpp"

namespace ucxstore::stream {

// A machine that vanishes says nothing. The kernel's keepalive notices it only while nothing is
// under way to it; else the kernel repeats that for a quarter of an hour. TCP_USER_TIMEOUT is
// shorter, but also ends peers that acknowledge and have no room for more, as a server with
// a slow storage.
class Acknowledged {
  public:
    static constexpr std::chrono::seconds kSilence{25};  // as the keepalive: protocol/sockets.py

    // Of a connected socket; of one that is none of TCP, all is acknowledged.
    explicit Acknowledged(int fd, base::Clock::duration silence = kSilence);

    // Something was sent.
    void sent() {
        if (look_at_ == base::TimePoint::max() && is_tcp_) {
            look_at_ = base::Clock::now() + silence_ / 5;
        }
    }
    // When to look. The kernel does not tell of acknowledgements.
    base::TimePoint look_at() const { return look_at_; }
    // False where the peer has acknowledged nothing for `silence`, and should have.
    bool look(base::TimePoint now);

  private:
    const int fd_;
    const base::Clock::duration silence_;
    const bool is_tcp_;
    base::TimePoint look_at_ = base::TimePoint::max();      // as nothing is under way
    base::TimePoint waits_since_ = base::TimePoint::max();  // for an acknowledgement
};

}  // namespace ucxstore::stream

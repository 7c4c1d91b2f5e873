// WorkerFences: whom the kernel lets connect to the TCP sockets on which UCX listens for one
// worker.
//
// UCX's TCP transport takes what whoever connects sends, one-sided writes to any address of this
// process among it. So each of its listening sockets gets a fence before the worker's address
// leaves the process: the kernel drops packets that come from anybody but the worker's one peer.
// Nobody connects to a client. Only a session's own client connects to a server, and only until the
// two have met.
//
// UCXSTORE_GATE=off in the environment goes without, for systems that have no fences.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "ucx/fence.hpp"

namespace ucxstore::ucx {

// Somebody has connected to a socket of UCX's before it had a fence. UCX has not looked at what he
// has sent, and must not: the worker is of no use, and another one may be.
class Knocked : public base::Error {
  public:
    Knocked()
        : base::Error(base::ErrorKind::connect,
                      "somebody has connected to a socket of UCX's while it was made") {}
};

class WorkerFences {
  public:
    // What this process listens on over TCP: taken before a worker is made, and compared with what
    // is there afterwards.
    class Before {
      public:
        Before();

      private:
        friend class WorkerFences;
        std::vector<ino_t> sockets_;  // sorted
    };

    // Shuts what a worker of this UCX address has begun to listen on since `before`. Throws
    // Error(connect) where the kernel refuses that, and Knocked.
    WorkerFences(const Before& before, const std::string& address);

    // Lets the packets of these hosts in. `user`: the peer is a process of this user on this host,
    // where the address tells nothing of who connects. Then the fences is guarded.
    void open(std::vector<Host> hosts, std::optional<uid_t> user);
    // Lets nobody connect any more. The connections that there are go on.
    void shut();

    bool guarded() const { return user_.has_value(); }
    // Of a guarded fences: whether UCX may look at what has come, which it does in the worker's
    // progress alone. It may if there are `events`, and all who have connected are processes of the
    // user; and the fences is shut meanwhile.
    bool may_look(bool events) noexcept;
    // Whether somebody else has connected, or nobody knows who. UCX must never look at what has
    // come.
    bool broken() const { return broken_; }

  private:
    bool are_the_users(bool events);
    void let_in(const std::vector<Host>& hosts);
    bool any_unaccepted() const;
    std::vector<int> accepted() const;

    std::vector<Fence> fences_;
    std::vector<Host> hosts_;
    std::optional<uid_t> user_;
    bool is_open_ = false;
    bool broken_ = false;
};

}  // namespace ucxstore::ucx

// The TCP control connection to a peer, once the handshake is over: nothing is sent on it any more,
// and its end is the end of the peer. UCX itself notices a dead peer late, or never if it sleeps.
#pragma once

#include <functional>

#include "base/handle.hpp"
#include "ucx/progress.hpp"

namespace ucxstore::ucx {

class Control {
  public:
    // Takes `fd` over. `on_end` runs once, on the progress thread. Only there may this be made
    // and destroyed.
    Control(Progress& progress, base::Fd fd, std::function<void()> on_end);
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;
    ~Control() { close(); }

    // Also shows the peer that the endpoint is gone, which it would not notice over shared memory.
    void close();

  private:
    void look(const std::function<void()>& on_end);

    Progress& progress_;
    base::Fd fd_;
};

}  // namespace ucxstore::ucx

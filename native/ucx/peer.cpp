#include "ucx/peer.hpp"

#include <utility>

namespace ucxstore::ucx {

Peer::Peer(std::unique_ptr<Worker> worker, std::chrono::seconds release_timeout)
    : worker_(std::move(worker)), release_timeout_(release_timeout) {}

bool Peer::begin_close() {
    thread_.check("closing a connection");
    if (closed_.exchange(true)) {
        return false;
    }
    closed_at_ = base::Clock::now();
    control_.reset();
    return true;
}

bool Peer::settle(Progress& progress, base::TimePoint now, bool overdue) {
    return worker_ == nullptr ||
           progress.retire(worker_, overdue || now - closed_at_ > release_timeout_);
}

}  // namespace ucxstore::ucx

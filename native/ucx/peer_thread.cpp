#include "ucx/peer_thread.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "memory/recycler.hpp"
#include "ucx/network.hpp"

namespace ucxstore::ucx {

using namespace std::chrono_literals;

namespace {

const Options& checked(const Options& options) {
    check_options(options);
    return options;
}

// UCX reaches this host's own addresses over the loopback alone.
std::string device_between(int fd) {
    const auto own = own_end(fd);
    const auto peer = peer_end(fd);
    return !own || !peer || is_of_this_host(peer->host) ? kLoopback : device_of(own->host);
}

// UCX lets nobody else open its shared memory, and fails where it is another user's; or where its
// two sides, which wake each other by sockets, have not one network.
bool may_share_memory(int fd) {
    if (fd < 0) {
        return true;
    }
    const auto peer = peer_end(fd);
    return (!peer || is_of_this_host(peer->host)) && user_at_other_end(fd) == geteuid();
}

}  // namespace

PeerThread::PeerThread(const Options& options, bool polling, std::string name, const char* closed)
    : closed_text_(closed),
      options_(checked(options)),
      progress_(std::make_shared<Progress>(driver_, polling, std::move(name))) {
    // Made here, where its failure for want of descriptors has a caller to go to.
    auto& recycler = memory::Recycler::instance();
    progress_->post([this, &recycler] {
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

PeerThread::~PeerThread() { close(1s); }

std::unique_ptr<Worker> PeerThread::open(int fd, SharedMemory memory) {
    const auto context = this->context(fd, memory);
    return progress_->call([&] { return std::make_unique<Worker>(context); }, closed_text_);
}

// A context for this connection. Not on the progress thread: it takes long, and waits for the GIL
// where UCX must be loaded.
std::shared_ptr<const Context> PeerThread::context(int fd, SharedMemory memory) {
    if (!may_share_memory(fd)) {
        memory = SharedMemory::off;
    }
    const std::string device = is_given(kDevices, options_) ? "" : device_between(fd);
    const base::Lock lock(starting_);
    auto& context = contexts_[{device, memory}];
    if (context == nullptr) {
        context = std::make_shared<const Context>(options_, device, memory);
    }
    return context;
}

void PeerThread::discard(std::unique_ptr<Worker> worker) {
    std::shared_ptr<Worker> shared = std::move(worker);
    progress_->post([shared = std::move(shared)]() mutable { shared.reset(); });
}

void PeerThread::adopt(std::unique_ptr<Worker> worker, base::Fd fd, const Make& make) {
    progress_->call(
        [&] {
            if (closed_) {
                worker.reset();  // on this thread: workers of one context are not thread-safe
                throw base::Error(base::ErrorKind::connect, closed_text_);
            }
            if (peers_.size() == peers_.capacity()) {
                peers_.reserve(2 * peers_.size() + 8);  // no peer is made that has no place
            }
            const std::shared_ptr<Peer> peer = make(std::move(worker));
            peers_.push_back(peer);
            try {
                progress_->add(peer->worker());
                peer->set_control(std::make_unique<Control>(*progress_, std::move(fd),
                                                            [weak = std::weak_ptr(peer)] {
                                                                if (const auto lost = weak.lock()) {
                                                                    lost->lose();
                                                                }
                                                            }));
            } catch (...) {
                peer->shut("it could not be connected");  // tick() waits for UCX to let go of it
                deadline_ = base::TimePoint::min();
                throw;
            }
            return true;
        },
        closed_text_);
}

bool PeerThread::busy() {
    bool busy = false;
    progress_->post_and_wait([&] {
        busy = std::ranges::any_of(
            peers_, [](const auto& peer) { return !peer->closed() && peer->busy(); });
    });
    return busy;
}

void PeerThread::leave() {
    progress_->post_and_wait([&] {
        for (const auto& peer : peers_) {
            if (!peer->closed()) {
                peer->leave();
            }
        }
    });
}

std::size_t PeerThread::peers() {
    std::ptrdiff_t count = 0;
    progress_->post_and_wait([&] {
        count = std::ranges::count_if(peers_, [](const auto& peer) { return !peer->closed(); });
    });
    return static_cast<std::size_t>(count);
}

void PeerThread::visit_peers(const std::function<void(const std::vector<Peer*>&)>& visitor) {
    progress_->post_and_wait([&] {
        std::vector<Peer*> open;
        for (const auto& peer : peers_) {
            if (!peer->closed()) {
                open.push_back(peer.get());
            }
        }
        visitor(open);
        deadline_ = base::Clock::now();
    });
}

void PeerThread::tick(base::TimePoint now) {
    deadline_ = base::TimePoint::max();
    std::erase_if(peers_, [&](const auto& peer) { return ended(*peer, now); });
}

// Whether the peer is over. If not, deadline_ is when to look again.
bool PeerThread::ended(Peer& peer, base::TimePoint now) {
    base::TimePoint due = now;
    try {
        if (peer.has_worker() && peer.worker().failed) {
            peer.lose();
        }
        due = peer.tick(*progress_, now);
    } catch (const std::exception&) {  // for want of memory
        peer.lose();
    }
    if (peer.closed() && due == base::TimePoint::max()) {
        if (peer.settle(*progress_, now)) {
            return true;
        }
        due = now + 1ms;
    }
    deadline_ = std::min(deadline_, due);
    return false;
}

void PeerThread::lose_all() noexcept {
    for (const auto& peer : peers_) {
        peer->lose();
    }
    deadline_ = base::TimePoint::min();
}

void PeerThread::close(std::chrono::milliseconds timeout) {
    const base::Lock lock(closing_);
    if (std::exchange(destroyed_, true)) {
        return;
    }
    progress_->post_and_wait([&] { end_all(base::Clock::now() + timeout); });
    progress_->stop();
}

void PeerThread::end_all(base::TimePoint deadline) {
    closed_ = true;
    for (const auto& peer : peers_) {
        peer->shut(closed_text_);
    }
    const auto unsettled = [](const auto& peer) {
        return peer->has_worker() && peer->worker().busy();
    };
    while (std::ranges::any_of(peers_, unsettled) && base::Clock::now() < deadline) {
        for (const auto& peer : peers_) {
            if (peer->has_worker()) {
                peer->worker().progress();
            }
        }
    }
    for (const auto& peer : peers_) {
        peer->tick(*progress_, base::TimePoint::max());  // what UCX still has hold of is overdue
        peer->settle(*progress_, base::Clock::now(), true);
    }
    peers_.clear();
}

}  // namespace ucxstore::ucx

#include "ucx/peer_thread.hpp"

#include <algorithm>
#include <utility>

#include "base/recycler.hpp"
#include "base/status.hpp"

namespace ucxstore {

using namespace std::chrono_literals;

PeerThread::PeerThread(const Options& options, bool polling, std::string name, const char* closed)
    : closed_text_(closed),
      context_(std::make_shared<const Context>(options)),
      progress_(std::make_shared<Progress>(driver_, polling, std::move(name))) {
    // Made here, where its failure for want of descriptors has a caller to go to.
    auto& recycler = Recycler::instance();
    progress_->post([this, &recycler] {
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

PeerThread::~PeerThread() { close(1s); }

std::unique_ptr<Worker> PeerThread::open() {
    return progress_->call([&] { return std::make_unique<Worker>(context_); }, closed_text_);
}

void PeerThread::discard(std::unique_ptr<Worker> worker) {
    std::shared_ptr<Worker> shared = std::move(worker);
    progress_->post([shared = std::move(shared)]() mutable { shared.reset(); });
}

void PeerThread::adopt(std::unique_ptr<Worker> worker, Fd fd, const Make& make) {
    progress_->call(
        [&] {
            if (closed_) {
                worker.reset();  // on this thread: workers of one context are not thread-safe
                throw Error(ErrorKind::connect, closed_text_);
            }
            const std::shared_ptr<Peer> peer = make(std::move(worker));
            peer->set_control(
                std::make_unique<Control>(*progress_, std::move(fd), [weak = std::weak_ptr(peer)] {
                    if (const auto lost = weak.lock()) {
                        lost->lose();
                    }
                }));
            progress_->add(peer->worker());
            peers_.push_back(peer);
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

std::size_t PeerThread::peers() {
    std::ptrdiff_t count = 0;
    progress_->post_and_wait([&] {
        count = std::ranges::count_if(peers_, [](const auto& peer) { return !peer->closed(); });
    });
    return static_cast<std::size_t>(count);
}

void PeerThread::tick(TimePoint now) {
    deadline_ = TimePoint::max();
    std::erase_if(peers_, [&](const auto& peer) { return ended(*peer, now); });
}

// Whether the peer is over. If not, deadline_ is when to look again.
bool PeerThread::ended(Peer& peer, TimePoint now) {
    TimePoint due = peer.tick(*progress_, now);
    if (peer.closed() && due == TimePoint::max()) {
        if (peer.settle(*progress_, now)) {
            return true;
        }
        due = now + 1ms;
    }
    deadline_ = std::min(deadline_, due);
    return false;
}

void PeerThread::close(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(closing_);
    if (std::exchange(destroyed_, true)) {
        return;
    }
    progress_->post_and_wait([&] { end_all(Clock::now() + timeout); });
    progress_->stop();
}

void PeerThread::end_all(TimePoint deadline) {
    closed_ = true;
    for (const auto& peer : peers_) {
        peer->shut(closed_text_);
    }
    const auto unsettled = [](const auto& peer) {
        return peer->has_worker() && peer->worker().busy();
    };
    while (std::ranges::any_of(peers_, unsettled) && Clock::now() < deadline) {
        for (const auto& peer : peers_) {
            if (peer->has_worker()) {
                peer->worker().progress();
            }
        }
    }
    for (const auto& peer : peers_) {
        peer->tick(*progress_, TimePoint::max());  // what UCX still has hold of is overdue
        peer->settle(*progress_, Clock::now(), true);
    }
    peers_.clear();
}

}  // namespace ucxstore

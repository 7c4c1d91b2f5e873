// A progress thread with a UCX context of its own, and the peers on it: how they begin and end.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "ucx/peer.hpp"

namespace ucxstore::ucx {

class PeerThread {
  public:
    // `polling` and `name` as for Progress; `closed` is the text of failures once it is closed.
    PeerThread(const Options& options, bool polling, std::string name, const char* closed);
    PeerThread(const PeerThread&) = delete;
    PeerThread& operator=(const PeerThread&) = delete;
    ~PeerThread();

    // Starts UCX, so that what is wrong with it shows at once. open() does it otherwise.
    void start_ucx(SharedMemory memory) { context(-1, memory); }
    // A worker for one peer: made before the handshake ends, as its address is part of that. It
    // uses the network device of the connection `fd`; that of this host's own where there is none.
    // `memory`: whether both sides ask for UCX's shared memory. It is used if they can: if their
    // processes are of one user, and of this host.
    std::unique_ptr<Worker> open(int fd = -1, SharedMemory memory = SharedMemory::off);
    // Destroys a worker whose handshake has failed.
    void discard(std::unique_ptr<Worker> worker);
    // Whether anything is under way with a peer.
    bool busy();
    // Tells all peers that this side ends.
    void leave();
    // The number of peers that are not closed.
    std::size_t peers();
    // Closes all peers and ends the thread. What UCX has not let go of by `timeout` is leaked.
    void close(std::chrono::milliseconds timeout);

  protected:
    using Make = std::function<std::shared_ptr<Peer>(std::unique_ptr<Worker>)>;
    // Takes the worker and the control connection over, makes the peer on the progress thread, and
    // drives it from now on. Throws Error(connect).
    void adopt(std::unique_ptr<Worker> worker, base::Fd fd, const Make& make);

    // Calls `visitor` on the progress thread with all peers that are not closed, and then looks at
    // them.
    void visit_peers(const std::function<void(const std::vector<Peer*>&)>& visitor);

    const std::shared_ptr<Progress>& progress() const { return progress_; }
    const char* closed_text() const { return closed_text_; }

  private:
    // A class of its own, as the thread runs before a class derived from PeerThread is complete.
    class Driver final : public Progress::Driver {
      public:
        explicit Driver(PeerThread& owner) : owner_(owner) {}
        void tick(base::TimePoint now) override { owner_.tick(now); }
        base::TimePoint deadline() const override { return owner_.deadline_; }
        void failed(const char*) noexcept override { owner_.lose_all(); }

      private:
        PeerThread& owner_;
    };

    void tick(base::TimePoint now);
    bool ended(Peer& peer, base::TimePoint now);
    void end_all(base::TimePoint deadline);
    void lose_all() noexcept;

    Driver driver_{*this};
    const char* const closed_text_;
    std::shared_ptr<const Context> context(int fd, SharedMemory memory);

    const Options options_;
    base::Mutex starting_;
    // By their device, and whether they share memory.
    std::map<std::pair<std::string, SharedMemory>, std::shared_ptr<const Context>> contexts_;
    std::vector<std::shared_ptr<Peer>> peers_;
    base::TimePoint deadline_ = base::TimePoint::max();
    bool closed_ = false;  // on the progress thread
    bool destroyed_ GUARDED_BY(closing_) = false;
    base::Mutex closing_;
    std::shared_ptr<Progress> progress_;  // sessions hold it weakly, for what comes later
};

}  // namespace ucxstore::ucx

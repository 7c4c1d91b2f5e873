// Peer: the other side, as a progress thread sees it. The base of a client's Connection and a
// server's Session. All of it but the constructor's caller runs on that thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "threads/thread_bound.hpp"
#include "ucx/control.hpp"
#include "ucx/progress.hpp"
#include "ucx/worker.hpp"

namespace ucxstore::ucx {

class Peer : public std::enable_shared_from_this<Peer> {
  public:
    // Takes the worker that it alone uses. `release_timeout`: how long UCX may take to let go of
    // memory once the connection is closed.
    Peer(std::unique_ptr<Worker> worker, std::chrono::seconds release_timeout);
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    virtual ~Peer() = default;

    Worker& worker() { return *worker_; }
    // False once settle() has destroyed or leaked it.
    bool has_worker() const { return worker_ != nullptr; }
    void set_control(std::unique_ptr<Control> control) { control_ = std::move(control); }
    bool closed() const { return closed_; }  // any thread

    // The control connection has ended. Only noted; tick() closes.
    virtual void lose() noexcept = 0;
    // Closes it because this side ends; `why` is the text of failures. Everything in flight ends in
    // bounded time.
    virtual void shut(const char* why) = 0;
    // Tells the other side that this one ends.
    virtual void leave() {}
    // Looks at deadlines and failures. Returns when the next look is due.
    virtual base::TimePoint tick(Progress& progress, base::TimePoint now) = 0;
    // Whether a request or a transfer is under way.
    virtual bool busy() const = 0;

    // Once closed: destroys the worker, if UCX has let go of it. Leaks it where UCX has not in
    // time, or, if `overdue`, at once. True once there is no worker.
    bool settle(Progress& progress, base::TimePoint now, bool overdue = false);

  protected:
    // Closes the control connection; false where that was done before.
    bool begin_close();

    const threads::ThreadBound thread_;
    std::unique_ptr<Worker> worker_;
    std::unique_ptr<Control> control_;
    std::atomic<bool> closed_ = false;

  private:
    const base::Clock::duration release_timeout_;
    base::TimePoint closed_at_{};
};

}  // namespace ucxstore::ucx

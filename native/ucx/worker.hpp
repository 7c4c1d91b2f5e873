// UCX worker (ucp_worker), used only by its progress thread. Each peer has one of its own. Over
// shared memory all peers of a worker write into one queue, and a peer that is killed while it
// writes leaves a gap there that the worker waits at for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/clock.hpp"
#include "threads/thread_bound.hpp"
#include "ucx/context.hpp"
#include "ucx/distance.hpp"

namespace ucxstore::ucx {

class Request;

class Worker {
  public:
    explicit Worker(std::shared_ptr<const Context> context);

    // Bound to the thread that made it, as UCX takes no locks for our workers.
    const threads::ThreadBound thread;

    ucp_worker_h get() const { return handle_.get(); }
    const Context& context() const { return *context_; }
    const std::string& address() const { return address_; }
    int event_fd() const { return event_fd_; }

    // One round; whether anything happened.
    bool progress() {
        thread.check("Worker::progress");
        return base::ucp_worker_progress(handle_.get()) != 0;
    }

    // Whether it may sleep on event_fd(): false means that events are there already.
    bool arm() { return base::ucp_worker_arm(handle_.get()) == UCS_OK; }

    void on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument);

    // The requests that UCX has not completed. While there are any, the thread must not sleep for
    // long: a shared-memory sender whose peer's queue is full gets no wake-up.
    std::unordered_set<Request*> requests;

    // Endpoints that UCX is still closing; waited for before the worker is destroyed.
    std::uint64_t closing = 0;

    // Whether UCX still has something of it to complete.
    bool busy() const { return requests.size() + closing > 0; }

    // Whether something has failed in a callback of UCX's, mostly for want of memory: no exception
    // may pass through UCX. Its thread ends the peer.
    bool failed = false;

    // When the round of its thread began in which it was driven last.
    base::TimePoint round{};

    // Set by whoever starts something on it, so that its thread looks after it again.
    bool used = true;

    // Whether UCX moves data only in progress(): over sockets and shared memory, where no adapter
    // writes by itself. Set by the endpoint.
    bool moves_only_in_progress = false;

    // Whether all data goes over POSIX shared memory, by two copies. Then we copy
    // ourselves: see Copier. Set by the endpoint.
    bool shares_memory = false;

    // The distance to the peer, over shared memory.
    Distance distance;

    // Leaks `worker`, for which UCX still has operations: to destroy it would be worse. It is never
    // driven again. Where only progress() moves data, its requests end here, as cancelled.
    static void leak(std::unique_ptr<Worker> worker);

  private:
    // All leaked workers, linked so that a leak checker can reach them.
    static std::atomic<Worker*> leaked_;
    Worker* leaked_before_ = nullptr;

    std::shared_ptr<const Context> context_;
    base::WorkerHandle handle_;
    std::string address_;
    int event_fd_ = -1;
};

}  // namespace ucxstore::ucx

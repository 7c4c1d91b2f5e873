// ucp_worker: used by one thread only, its progress thread. There is one a peer: over shared memory
// all peers of a worker write into one queue, and one that is killed while it writes leaves a hole
// that the worker waits at for ever. So a dead peer must take its own queue along.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/thread_bound.hpp"
#include "ucx/context.hpp"
#include "ucx/distance.hpp"

namespace ucxstore {

class Request;

class Worker {
  public:
    explicit Worker(std::shared_ptr<const Context> context);

    // The thread that made it: UCX takes no lock for a worker of ours.
    const ThreadBound thread;

    ucp_worker_h get() const { return handle_.get(); }
    const Context& context() const { return *context_; }
    const std::string& address() const { return address_; }
    int event_fd() const { return event_fd_; }

    // One round; whether anything happened.
    bool progress() {
        thread.check("Worker::progress");
        return ucp_worker_progress(handle_.get()) != 0;
    }

    // Whether it may sleep on event_fd(): false means that events are there already.
    bool arm() { return ucp_worker_arm(handle_.get()) == UCS_OK; }

    void on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument);

    // Those that UCX has not completed; while there are any, the thread must not sleep for long: a
    // shared-memory sender whose peer's queue is full gets no wake-up.
    std::unordered_set<Request*> requests;

    // Endpoints that UCX is still closing; waited for before the worker is destroyed.
    std::uint64_t closing = 0;

    // Whether UCX still has something of it to complete.
    bool busy() const { return requests.size() + closing > 0; }

    // Set by whoever starts something on it, so that its thread looks after it again.
    bool used = true;

    // Whether UCX moves data nowhere but in progress(): so over sockets and shared memory, where no
    // adapter writes by itself. An endpoint tells.
    bool moves_only_in_progress = false;

    // Whether all that it moves goes over System V or POSIX shared memory, by two copies: then we
    // make them ourselves. An endpoint tells.
    bool shares_memory = false;

    // To the peer, over shared memory; elsewhere nothing is far.
    Distance distance;

    // Gives `worker` up without destroying it, for good: for one that UCX still holds operations
    // of, where destroying would be worse than a leak. What it was to do, it never does any more;
    // where that is certain, its requests end here, as cancelled.
    static void leak(std::unique_ptr<Worker> worker);

  private:
    // Those that were leaked, linked so that a leak checker tells them from what was forgotten.
    static std::atomic<Worker*> leaked_;
    Worker* leaked_before_ = nullptr;

    std::shared_ptr<const Context> context_;
    WorkerHandle handle_;
    std::string address_;
    int event_fd_ = -1;
};

}  // namespace ucxstore

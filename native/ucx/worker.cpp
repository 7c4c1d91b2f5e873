#include "ucx/worker.hpp"

#include <sys/eventfd.h>

#include <array>
#include <utility>

#include "base/fork.hpp"
#include "base/status.hpp"
#include "ucx/request.hpp"

namespace ucxstore::ucx {
namespace {

// What a worker and its endpoint take at the most (measured: 12 over shared memory, 9 over TCP).
constexpr std::size_t kDescriptors = 24;

// Where UCX runs out of descriptors it leaves handlers behind for some that it has closed. It fails
// for good once their numbers are used again. So UCX must not run out.
void require_descriptors() {
    std::array<base::Fd, kDescriptors> probes;
    for (base::Fd& probe : probes) {
        probe = base::Fd(eventfd(0, EFD_CLOEXEC));
        if (!probe) {
            throw base::Error(
                base::ErrorKind::connect,
                "a UCX worker takes up to " + std::to_string(kDescriptors) +
                    " descriptors, and this process has not so many left (ulimit -n)");
        }
    }
}

}  // namespace

Worker::Worker(std::shared_ptr<const Context> context) : context_(std::move(context)) {
    require_descriptors();
    const base::AsyncThreadWatch watch;
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
    params.thread_mode = UCS_THREAD_MODE_SINGLE;
    params.events = UCP_WAKEUP_AMO | UCP_WAKEUP_RMA | UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV |
                    UCP_WAKEUP_TX | UCP_WAKEUP_RX;
    ucp_worker_h worker = nullptr;
    base::check(base::ucp_worker_create(context_->get(), &params, &worker),
                "creating a UCX worker");
    handle_.reset(worker);

    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    base::check(base::ucp_worker_get_address(worker, &address, &length),
                "asking UCX for its address");
    address_.assign(reinterpret_cast<const char*>(address), length);
    base::ucp_worker_release_address(worker, address);

    base::check(base::ucp_worker_get_efd(worker, &event_fd_),
                "asking UCX for its event descriptor");
}

void Worker::on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    params.id = id;
    params.cb = callback;
    params.arg = argument;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    base::check(base::ucp_worker_set_am_recv_handler(get(), &params),
                "registering a UCX message handler");
}

std::atomic<Worker*> Worker::leaked_ = nullptr;

void Worker::leak(std::unique_ptr<Worker> worker) {
    Worker* const given_up = worker.release();
    if (given_up->moves_only_in_progress) {
        while (!given_up->requests.empty()) {
            (*given_up->requests.begin())->finish(UCS_ERR_CANCELED);
        }
    }
    given_up->leaked_before_ = leaked_.exchange(given_up);
}

}  // namespace ucxstore::ucx

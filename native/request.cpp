#include "request.hpp"

namespace ucxstore {
namespace {

// Above this, rendezvous: the receiver's memory is filled without staging. Below, one eager
// fragment is cheaper than a handshake. It must stay under one fragment of every transport, as
// UCX would assemble several in memory of its own.
constexpr std::uint64_t kEagerBytes = 4096;

}  // namespace

std::uint64_t Request::bytes() const {
    std::uint64_t sum = 0;
    for (const ucp_dt_iov_t& piece : pieces) {
        sum += piece.length;
    }
    return sum;
}

void Request::send(std::unique_ptr<Request> request, Worker& worker, ucp_ep_h endpoint,
                   wire::Message message, const void* header, std::size_t header_size) {
    request->worker_ = &worker;
    worker.used = true;
    const auto& pieces = request->pieces;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    // Requests and listings' queries are eager at any size: the server takes nothing else.
    const bool eager = message == wire::Message::request || request->bytes() <= kEagerBytes;
    params.flags =
        UCP_AM_SEND_FLAG_COPY_HEADER | (eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
    params.cb.send = &Request::sent;
    params.user_data = request.get();
    const void* buffer = nullptr;
    std::size_t count = 0;
    // A list of one piece is never registered as a whole: see Context::has_registration_cache().
    const bool as_list = !eager && !worker.context().has_registration_cache();
    if (pieces.size() > 1 || (as_list && !pieces.empty())) {
        params.datatype = ucp_dt_make_iov();
        buffer = pieces.data();
        count = pieces.size();
    } else {
        params.datatype = ucp_dt_make_contig(1);
        if (!pieces.empty()) {
            buffer = pieces[0].buffer;
            count = pieces[0].length;
        }
    }
    const ucs_status_ptr_t pointer = ucp_am_send_nbx(endpoint, static_cast<unsigned>(message),
                                                     header, header_size, buffer, count, &params);
    settle(std::move(request), pointer);
}

void Request::receive(std::unique_ptr<Request> request, Worker& worker, void* descriptor) {
    request->worker_ = &worker;
    worker.used = true;
    const auto& pieces = request->pieces;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv_am = &Request::received;
    params.user_data = request.get();
    void* buffer = nullptr;
    std::size_t count = 0;
    if (pieces.size() > 1) {
        params.datatype = ucp_dt_make_iov();
        buffer = const_cast<ucp_dt_iov_t*>(pieces.data());
        count = pieces.size();
    } else {
        params.datatype = ucp_dt_make_contig(1);
        if (!pieces.empty()) {
            buffer = pieces[0].buffer;
            count = pieces[0].length;
        }
    }
    const ucs_status_ptr_t pointer =
        ucp_am_recv_data_nbx(worker.get(), descriptor, buffer, count, &params);
    settle(std::move(request), pointer);
}

void Request::settle(std::unique_ptr<Request> request, ucs_status_ptr_t pointer) {
    if (UCS_PTR_IS_PTR(pointer)) {
        ++request->worker_->in_flight;
        static_cast<void>(request.release());  // the callback takes it back
    } else {
        request->completed(UCS_PTR_STATUS(pointer));
    }
}

void Request::finish(ucs_status_t status) {
    const std::unique_ptr<Request> owner(this);
    --worker_->in_flight;
    completed(status);
}

void Request::sent(void* ucx_request, ucs_status_t status, void* argument) {
    static_cast<Request*>(argument)->finish(status);
    ucp_request_free(ucx_request);
}

void Request::received(void* ucx_request, ucs_status_t status, std::size_t, void* argument) {
    static_cast<Request*>(argument)->finish(status);
    ucp_request_free(ucx_request);
}

}  // namespace ucxstore

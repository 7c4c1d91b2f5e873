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

Request::Buffer Request::buffer(const Worker& worker, bool eager) {
    // A list of one piece is never registered as a whole: see Context::has_registration_cache().
    const bool as_list = !eager && !worker.context().has_registration_cache();
    if (pieces.empty()) {
        return {ucp_dt_make_contig(1), nullptr, 0};
    }
    if (pieces.size() > 1 || as_list) {
        return {ucp_dt_make_iov(), pieces.data(), pieces.size()};
    }
    return {ucp_dt_make_contig(1), pieces[0].buffer, pieces[0].length};
}

void Request::send(std::unique_ptr<Request> request, Worker& worker, ucp_ep_h endpoint,
                   wire::Message message, const void* header, std::size_t header_size) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    // Requests and listings' queries are eager at any size: the server takes nothing else.
    const bool eager = message == wire::Message::request || request->bytes() <= kEagerBytes;
    params.flags =
        UCP_AM_SEND_FLAG_COPY_HEADER | (eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
    params.cb.send = &Request::sent;
    const Buffer buffer = request->buffer(worker, eager);
    params.datatype = buffer.datatype;
    Request* const given = give(std::move(request), worker);
    params.user_data = given;
    settle(given, ucp_am_send_nbx(endpoint, static_cast<unsigned>(message), header, header_size,
                                  buffer.address, buffer.count, &params));
}

void Request::receive(std::unique_ptr<Request> request, Worker& worker, void* descriptor) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv_am = &Request::received;
    const Buffer buffer = request->buffer(worker, false);
    params.datatype = buffer.datatype;
    Request* const given = give(std::move(request), worker);
    params.user_data = given;
    settle(given,
           ucp_am_recv_data_nbx(worker.get(), descriptor, buffer.address, buffer.count, &params));
}

Request* Request::give(std::unique_ptr<Request> request, Worker& worker) {
    request->worker_ = &worker;
    worker.used = true;
    worker.requests.insert(request.get());
    return request.release();
}

void Request::settle(Request* given, ucs_status_ptr_t pointer) {
    if (!UCS_PTR_IS_PTR(pointer)) {
        given->finish(UCS_PTR_STATUS(pointer));
    }
}

void Request::finish(ucs_status_t status) {
    const std::unique_ptr<Request> owner(this);
    worker_->requests.erase(this);
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

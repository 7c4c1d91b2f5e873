#include "ucx/request.hpp"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/global.hpp"
#include "base/status.hpp"

namespace ucxstore::ucx {
namespace {

// A socket takes pieces of this size from a list about as fast as we copy them, and smaller ones at
// 0.3 us each, however small they are: 16,000 of 64 bytes take 6 ms, and 0.4 ms copied.
constexpr std::uint64_t kLeastPiece = 4096;

// One in so many fragments that are filled is staged, to measure how far the reader is: how long it
// takes to get the bytes says nothing of that.
constexpr unsigned kMeasuredOf = 16;

constinit base::Global<ucp_datatype_t> datatype_of_process;

}  // namespace

std::uint64_t Request::bytes() const {
    std::uint64_t sum = filled;
    for (const ucp_dt_iov_t& piece : pieces) {
        sum += piece.length;
    }
    return sum;
}

Request::Buffer Request::buffer(const Worker& worker, bool eager) {
    if (taken > 0 || filled > 0) {
        return {copied(), this, 1};
    }
    if (pieces.empty()) {
        return {ucp_dt_make_contig(1), nullptr, 0};
    }
    if (eager && pieces.size() > 1) {
        return packed();
    }
    const bool finely_cut =
        worker.moves_only_in_progress && pieces.size() > 1 && bytes() / pieces.size() < kLeastPiece;
    if (!eager && (worker.shares_memory || finely_cut)) {
        copier_.emplace(pieces);
        if (summed) {
            running_.emplace(copier_->size());
        }
        return {copied(), this, 1};
    }
    // A list of one piece is never registered as a whole: see Context::has_registration_cache().
    const bool as_list = !eager && !worker.context().has_registration_cache();
    if (pieces.size() > 1 || as_list) {
        return {ucp_dt_make_iov(), pieces.data(), pieces.size()};
    }
    return {ucp_dt_make_contig(1), pieces[0].buffer, pieces[0].length};
}

// UCX copies what is eager anyway, and piece by piece over a socket: 0.3 us each.
Request::Buffer Request::packed() {
    packed_.resize(bytes());
    memory::Copier(pieces).gather(0, packed_.data(), packed_.size(), memory::Write::cached);
    return {ucp_dt_make_contig(1), packed_.data(), packed_.size()};
}

void Request::send(std::unique_ptr<Request> request, Worker& worker, ucp_ep_h endpoint,
                   protocol::Message message, const void* header, std::size_t header_size) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    // Requests and listings' queries are eager at any size: the server takes nothing else.
    const bool eager =
        message == protocol::Message::request || request->bytes() <= protocol::kEagerBytes;
    params.flags =
        UCP_AM_SEND_FLAG_COPY_HEADER | (eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
    params.cb.send = &Request::sent;
    const Buffer buffer = request->buffer(worker, eager);
    params.datatype = buffer.datatype;
    Request* const given = give(std::move(request), worker);
    params.user_data = given;
    settle(given, base::ucp_am_send_nbx(endpoint, static_cast<unsigned>(message), header,
                                        header_size, buffer.address, buffer.count, &params));
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
    settle(given, base::ucp_am_recv_data_nbx(worker.get(), descriptor, buffer.address, buffer.count,
                                             &params));
}

ucp_datatype_t Request::copied() {
    return *datatype_of_process.get([] {
        ucp_generic_dt_ops_t operations{};
        operations.start_pack = [](void*, const void* request, std::size_t) {
            return const_cast<void*>(request);
        };
        operations.start_unpack = [](void*, void* request, std::size_t) { return request; };
        operations.packed_size = &copied_size;
        operations.pack = &pack;
        operations.unpack = &unpack;
        operations.finish = [](void*) {};  // the request ends with its completion
        ucp_datatype_t created{};
        base::check(base::ucp_dt_create_generic(&operations, nullptr, &created),
                    "creating a UCX datatype");
        return new ucp_datatype_t(created);
    });
}

std::size_t Request::copied_size(void* request) {
    const auto* const self = static_cast<Request*>(request);
    return self->copier_ ? self->copier_->size() : std::max(self->taken, self->filled);
}

std::size_t Request::pack(void* request, std::size_t offset, void* target, std::size_t room) {
    auto* const self = static_cast<Request*>(request);
    if (self->filled > 0) {
        const std::uint64_t length = std::min<std::uint64_t>(room, self->filled - offset);
        self->pack_filled(offset, {static_cast<std::byte*>(target), length});
        return length;
    }
    const std::uint64_t length = std::min<std::uint64_t>(room, self->copier_->size() - offset);
    self->gather(*self->copier_, offset, {static_cast<std::byte*>(target), length});
    return length;
}

void Request::gather(memory::Copier& copier, std::uint64_t offset, std::span<std::byte> target) {
    using Clock = std::chrono::steady_clock;
    Distance& distance = worker_->distance;
    const auto start = Clock::now();
    copier.gather(offset, target.data(), target.size(),
                  distance.is_far() ? memory::Write::past_caches : memory::Write::cached);
    if (worker_->shares_memory) {
        distance.note(target.size(), Clock::now() - start);
    }
}

// Straight into the fragment, unless its lines are far, or it is to be seen whether they are.
void Request::pack_filled(std::uint64_t offset, std::span<std::byte> target) {
    const bool measured = worker_->shares_memory && fragments_++ % kMeasuredOf == 0;
    if (target.size() > staged_bytes_ && (measured || worker_->distance.is_far())) {
        staged_.reset(new (std::nothrow) std::byte[target.size()]);
        staged_bytes_ = staged_ == nullptr ? 0 : target.size();
    }
    if (staged_ == nullptr || (!measured && !worker_->distance.is_far())) {
        fill(offset, target);
        return;
    }
    fill(offset, {staged_.get(), target.size()});
    const ucp_dt_iov_t piece{staged_.get(), target.size()};
    memory::Copier copier({&piece, 1});
    gather(copier, 0, target);
}

ucs_status_t Request::unpack(void* request, std::size_t offset, const void* source,
                             std::size_t length) {
    auto* const self = static_cast<Request*>(request);
    const auto* const bytes = static_cast<const std::byte*>(source);
    if (self->running_ && offset < self->copier_->size()) {
        self->running_->add(
            offset, {bytes, std::min<std::uint64_t>(length, self->copier_->size() - offset)});
    }
    if (self->copier_) {
        self->copier_->scatter(offset, bytes, length, self->write);
    } else if (offset < self->taken) {  // what lies beyond is dropped, as a copier does
        self->take(offset, {bytes, std::min<std::uint64_t>(length, self->taken - offset)});
    }
    return UCS_OK;
}

Request* Request::give(std::unique_ptr<Request> request, Worker& worker) {
    worker.thread.check("a UCX request");
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
    try {
        completed(status);
    } catch (const std::exception&) {
        worker_->failed = worker_->used = true;
    }
}

void Request::sent(void* ucx_request, ucs_status_t status, void* argument) {
    static_cast<Request*>(argument)->finish(status);
    base::ucp_request_free(ucx_request);
}

void Request::received(void* ucx_request, ucs_status_t status, std::size_t, void* argument) {
    static_cast<Request*>(argument)->finish(status);
    base::ucp_request_free(ucx_request);
}

}  // namespace ucxstore::ucx

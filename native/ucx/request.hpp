// Request: a send or receive that UCX has in flight. It owns the memory until UCX has completed it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "memory/copier.hpp"
#include "memory/crc32c.hpp"
#include "protocol/wire.hpp"
#include "ucx/worker.hpp"

namespace ucxstore::ucx {

class Request {
  public:
    virtual ~Request() = default;

    // Called once, on the progress thread, when UCX will not touch the memory any more.
    virtual void completed(ucs_status_t status) = 0;

    // The memory: several pieces are a scatter/gather list.
    std::vector<ucp_dt_iov_t> pieces;

    // How many bytes are received by take(), fragment by fragment, where they go to no `pieces`.
    std::uint64_t taken = 0;
    // Copies bytes of the message that begin at `offset`. No exception may pass through UCX.
    virtual void take(std::uint64_t, std::span<const std::byte>) noexcept {}

    // How many bytes are sent by fill(), fragment by fragment, where they lie in no `pieces`. Only
    // where UCX moves data in progress() alone.
    std::uint64_t filled = 0;
    // Writes bytes of the message that begin at `offset`, all of `target`; in order, mostly. What
    // cannot be had is zeros, and known as completed() runs.
    virtual void fill(std::uint64_t, std::span<std::byte>) noexcept {}

    // How what is received is written, where the processor does that.
    memory::Write write = memory::Write::cached;

    // Whether what is received is to be summed; then, in completed(), its checksum. What we copy
    // ourselves is summed on its way, else it is read once more.
    bool summed = false;
    std::uint32_t sum() const { return running_ ? running_->value() : memory::crc32c(pieces); }

    // Both hand `request` to UCX and return at once; completed() may run before they do.
    static void send(std::unique_ptr<Request> request, Worker& worker, ucp_ep_h endpoint,
                     protocol::Message message, const void* header, std::size_t header_size);
    static void receive(std::unique_ptr<Request> request, Worker& worker, void* descriptor);

    // Completes and destroys it. UCX must not touch the memory any more.
    void finish(ucs_status_t status);

  private:
    // `pieces` as UCX takes them.
    struct Buffer {
        ucp_datatype_t datatype;
        void* address;
        std::size_t count;
    };
    Buffer buffer(const Worker& worker, bool eager);
    Buffer packed();

    // A datatype for UCX by which we copy each fragment ourselves: see Copier and take().
    static ucp_datatype_t copied();
    static std::size_t copied_size(void* request);
    static std::size_t pack(void* request, std::size_t offset, void* target, std::size_t room);
    void gather(memory::Copier& copier, std::uint64_t offset, std::span<std::byte> target);
    void pack_filled(std::uint64_t offset, std::span<std::byte> target);
    static ucs_status_t unpack(void* request, std::size_t offset, const void* source,
                               std::size_t length);

    // Before UCX is called, which may run the callback, and so end the request, before it returns.
    static Request* give(std::unique_ptr<Request> request, Worker& worker);
    // After UCX was called: where it completed at once it runs no callback.
    static void settle(Request* given, ucs_status_ptr_t pointer);
    static void sent(void* ucx_request, ucs_status_t status, void* argument);
    static void received(void* ucx_request, ucs_status_t status, std::size_t length,
                         void* argument);
    std::uint64_t bytes() const;

    Worker* worker_ = nullptr;
    std::optional<memory::Copier> copier_;
    std::optional<memory::RunningSum> running_;
    std::vector<std::byte> packed_;        // the bytes of `pieces`, where they are few
    std::unique_ptr<std::byte[]> staged_;  // a fragment that is filled
    std::size_t staged_bytes_ = 0;
    unsigned fragments_ = 0;  // that were filled
};

}  // namespace ucxstore::ucx

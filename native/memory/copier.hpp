// Our own copy between the pieces of a scatter list and the fragments in which UCX moves a message.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucxstore::memory {

// How a copy writes. An ordinary store first fetches the line that it is about to overwrite, and
// keeps it. Past the caches nothing is fetched, and nothing is kept: right where the memory is
// larger than the caches (100 MB into rows of 2 kB take 8.4 ms by ordinary stores, and 3.7 ms past
// the caches), and where lines would have to be fetched from afar.
enum class Write { cached, past_caches };

// Goes through a message mostly in order; the pieces must outlive it.
class Copier {
  public:
    explicit Copier(std::span<const ucp_dt_iov_t> pieces);

    std::uint64_t size() const { return size_; }

    // Bytes [offset, offset + length) of the message, into the pieces; what lies beyond their end
    // is dropped.
    void scatter(std::uint64_t offset, const std::byte* source, std::uint64_t length, Write how);

    // The memory of byte `offset` of the message, and of what lies behind it in its piece. There is
    // such a byte.
    std::span<std::byte> at(std::uint64_t offset);

    // The other way; bytes that the pieces have.
    void gather(std::uint64_t offset, std::byte* target, std::uint64_t length, Write how);

  private:
    std::span<const ucp_dt_iov_t> pieces_;
    std::uint64_t size_ = 0;
    std::size_t piece_ = 0;    // the last one that was looked at
    std::uint64_t begin_ = 0;  // where it begins in the message
};

}  // namespace ucxstore::memory

// CRC32C, the checksum of iSCSI, Zarr and Google Cloud Storage (RFC 3720, B.4): by the processor's
// own instruction where it has one, and by vectors where it multiplies polynomials in them.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucxstore::memory {

// Of the bytes that `before` is the checksum of, and these behind them. That of no bytes is 0.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
// Of all these pieces, one after another.
std::uint32_t crc32c(std::span<const ucp_dt_iov_t> pieces);

// The same by the instruction alone, as on processors whose vectors don't multiply polynomials; by
// tables, as on those without that instruction.
std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t before = 0);
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Of bytes with the checksum `first`, and `second_length` ones behind them, with `second`.
std::uint32_t join_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_length);

// The checksum of a message that comes in fragments, in any order, each once.
class RunningSum {
  public:
    explicit RunningSum(std::uint64_t total) : total_(total) {}
    void add(std::uint64_t offset, std::span<const std::byte> bytes);
    // Once all have come.
    std::uint32_t value() const { return join_crc32c(in_order_, 0, total_ - next_) ^ others_; }

  private:
    std::uint64_t total_;
    std::uint64_t next_ = 0;      // where the bytes end that have come in order,
    std::uint32_t in_order_ = 0;  // and their checksum
    std::uint32_t others_ = 0;    // of the other fragments, each as if zeros followed it
};

}  // namespace ucxstore::memory

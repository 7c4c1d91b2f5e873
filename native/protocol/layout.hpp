// Where the bytes of a value lie in memory: pure arithmetic, no I/O.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ucxstore::protocol {

struct Dim {
    std::uint64_t count;
    std::int64_t stride;  // bytes
};

// A box of strided memory, taken in C order: `run` contiguous bytes at every position of `dims`
// (outermost first), `offset` bytes from some base. Neighbouring axes that lie end to end are
// merged, so that a contiguous box has no dims at all. Or several such boxes, one after another,
// each at an offset of its own.
class Layout {
  public:
    Layout() = default;
    static Layout contiguous(std::uint64_t size, std::int64_t offset = 0);
    static Layout strided(std::int64_t offset, std::uint64_t itemsize, std::span<const Dim> dims);
    static Layout gathered(std::vector<std::int64_t> offsets, std::uint64_t itemsize,
                           std::span<const Dim> dims);

    std::uint64_t size() const { return size_; }
    std::uint64_t run() const { return run_; }
    std::uint64_t run_count() const { return run_ == 0 ? 0 : size_ / run_; }
    // Where a single box begins; several boxes begin at offsets(), which is empty for a single one.
    std::int64_t offset() const { return offset_; }
    const std::vector<std::int64_t>& offsets() const { return offsets_; }
    const std::vector<Dim>& dims() const { return dims_; }
    std::uint64_t box_size() const { return offsets_.empty() ? size_ : size_ / offsets_.size(); }

    // Whether every byte lies in [0, extent): for layouts that a peer sent. Never overflows.
    bool fits(std::uint64_t extent) const;

    // Appends the pieces of memory that hold bytes [begin, begin + length) of the box. Runs that
    // turn out to be neighbours are one piece.
    void pieces(std::byte* base, std::uint64_t begin, std::uint64_t length,
                std::vector<ucp_dt_iov_t>& out) const;

    // Copies all of it to `target`, without a list of pieces: to list a short run takes longer than
    // to copy it.
    void pack(const std::byte* base, std::byte* target) const;

  private:
    std::int64_t offset_ = 0;
    std::uint64_t run_ = 0;
    std::uint64_t size_ = 0;
    std::vector<Dim> dims_;
    std::vector<std::int64_t> offsets_;  // two at least, or none
};

// Copies `length` bytes at `source` into `pieces`, which hold at least as many.
void scatter(const std::byte* source, std::uint64_t length, std::span<const ucp_dt_iov_t> pieces);

}  // namespace ucxstore::protocol

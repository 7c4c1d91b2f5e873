// An arena of a server of this host, as a client sees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/handle.hpp"
#include "base/huge_pages.hpp"
#include "base/status.hpp"
#include "local/mapping.hpp"

namespace ucxstore {

class SeenArena {
  public:
    // `bytes`: of its blocks. Behind them lie the bits of its huge pages, or nothing at all where
    // it is a value that a client has made. Throws Error(protocol).
    SeenArena(Fd file, std::uint64_t bytes, std::uint64_t limit)
        : file_(std::move(file)),
          memory_(file_, local::Mapping::Access::read, limit),
          bytes_(bytes) {
        const std::uint64_t words = bytes / kHugePageBytes / 64 + 1;
        if (memory_.size() == bytes) {
            file_.reset();
            return;
        }
        if (bytes > memory_.size() || bytes % 8 != 0 ||
            memory_.size() - bytes < words * sizeof(std::uint64_t)) {
            throw Error(ErrorKind::protocol, "an arena that is not as large as it should be");
        }
    }

    const std::byte* data() const { return memory_.data(); }
    std::uint64_t size() const { return bytes_; }
    // Where a piece is huge, which is mapped from there.
    int file() const { return file_.get(); }
    // Whether this piece, of the size of a huge page, is one.
    bool is_huge(std::uint64_t piece) const {
        if (memory_.size() == bytes_) {
            return false;
        }
        const auto* const words =
            reinterpret_cast<const std::atomic<std::uint64_t>*>(memory_.data() + bytes_);
        return (words[piece / 64].load(std::memory_order_acquire) >> piece % 64 & 1) != 0;
    }

  private:
    Fd file_;
    const local::Mapping memory_;
    const std::uint64_t bytes_;
};

}  // namespace ucxstore

// Checksums of blocks of memory that does not change, each computed once: what is sent often is
// summed once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ucxstore::memory {

// Any thread.
class KeptSums {
  public:
    // To sum a block takes 3 us, and to join its sum to others 0.2.
    static constexpr std::uint64_t kBlock = 64 << 10;

    explicit KeptSums(std::span<const std::byte> memory);

    // Of these bytes, which do not change from now on.
    std::uint32_t sum(std::uint64_t begin, std::uint64_t length);

  private:
    std::uint32_t block(std::uint64_t index);

    const std::span<const std::byte> memory_;
    const std::unique_ptr<std::atomic<std::uint64_t>[]> blocks_;  // kKnown and the sum, or 0
};

}  // namespace ucxstore::memory

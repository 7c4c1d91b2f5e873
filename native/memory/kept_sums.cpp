#include "memory/kept_sums.hpp"

#include <algorithm>

#include "memory/crc32c.hpp"

namespace ucxstore::memory {
namespace {

constexpr std::uint64_t kKnown = 1ull << 32;

}  // namespace

KeptSums::KeptSums(std::span<const std::byte> memory)
    : memory_(memory),
      blocks_(
          std::make_unique<std::atomic<std::uint64_t>[]>((memory.size() + kBlock - 1) / kBlock)) {}

std::uint32_t KeptSums::sum(std::uint64_t begin, std::uint64_t length) {
    const std::uint64_t end = begin + length;
    std::uint32_t sum = 0;
    while (begin < end) {
        const std::uint64_t block_end =
            std::min<std::uint64_t>((begin / kBlock + 1) * kBlock, memory_.size());
        if (begin % kBlock == 0 && block_end <= end) {
            sum = join_crc32c(sum, block(begin / kBlock), block_end - begin);
        } else {
            const std::uint64_t size = std::min(block_end, end) - begin;
            sum = crc32c(memory_.subspan(begin, size), sum);
        }
        begin = std::min(block_end, end);
    }
    return sum;
}

// Two threads may compute the same one: the memory does not change.
std::uint32_t KeptSums::block(std::uint64_t index) {
    std::uint64_t known = blocks_[index].load(std::memory_order_relaxed);
    if (known == 0) {
        const std::uint64_t begin = index * kBlock;
        const std::uint64_t size = std::min<std::uint64_t>(kBlock, memory_.size() - begin);
        known = kKnown | crc32c(memory_.subspan(begin, size));
        blocks_[index].store(known, std::memory_order_relaxed);
    }
    return static_cast<std::uint32_t>(known);
}

}  // namespace ucxstore::memory

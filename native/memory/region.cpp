#include "memory/region.hpp"

#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "base/status.hpp"
#include "memory/crc32c.hpp"

namespace ucxstore::memory {
namespace {

// Smaller values come from the heap; a mapping of their own would cost more than it saves.
constexpr std::uint64_t kMapAbove = 256ull << 10;

class HeapRegion : public Region {
  public:
    explicit HeapRegion(std::uint64_t size)
        : data_(static_cast<std::byte*>(std::malloc(size == 0 ? 1 : size))), size_(size) {
        if (data_ == nullptr) {
            throw base::Error(base::ErrorKind::memory, "not enough memory for a value of " +
                                                           std::to_string(size) + " bytes");
        }
    }
    HeapRegion(const HeapRegion&) = delete;
    HeapRegion& operator=(const HeapRegion&) = delete;
    ~HeapRegion() override { std::free(data_); }
    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }

  private:
    std::byte* data_;
    std::uint64_t size_;
};

class RecycledRegion : public Region {
  public:
    RecycledRegion(std::uint64_t size, Kept kept)
        : mapping_(Recycler::instance().take(size, kept)), size_(size) {}
    RecycledRegion(const RecycledRegion&) = delete;
    RecycledRegion& operator=(const RecycledRegion&) = delete;
    ~RecycledRegion() override { Recycler::instance().give(mapping_); }
    std::byte* data() const override { return mapping_.data; }
    std::uint64_t size() const override { return size_; }
    Extent extent() const override {
        return {mapping_.capacity, mapping_.present ? mapping_.capacity : 0};
    }

  private:
    const Mapping mapping_;
    const std::uint64_t size_;
};

}  // namespace

std::uint32_t Region::checksum(std::uint64_t begin, std::uint64_t length) const {
    if (length < KeptSums::kBlock) {
        return crc32c(std::span<const std::byte>(data() + begin, length));
    }
    KeptSums* sums = sums_.load(std::memory_order_acquire);
    if (sums == nullptr) {
        auto made = std::make_unique<KeptSums>(std::span<const std::byte>(data(), size()));
        if (sums_.compare_exchange_strong(sums, made.get())) {
            sums = made.release();
        }
    }
    return sums->sum(begin, length);
}

std::shared_ptr<Region> allocate_region(std::uint64_t size, Kept kept) {
    if (size < kMapAbove) {
        return std::make_shared<HeapRegion>(size);
    }
    return std::make_shared<RecycledRegion>(size, kept);
}

}  // namespace ucxstore::memory

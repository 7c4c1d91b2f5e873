#include "region.hpp"

#include "status.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace ucxstore {
namespace {

constexpr std::uint64_t kHugePage = 2ull << 20;

// Smaller values come from the heap; a mapping of their own would cost more than it saves.
constexpr std::uint64_t kMapAbove = 1ull << 20;

class HeapRegion : public Region {
  public:
    explicit HeapRegion(std::uint64_t size)
        : data_(static_cast<std::byte*>(std::malloc(size == 0 ? 1 : size))), size_(size) {
        if (data_ == nullptr) {
            throw Error(ErrorKind::backing,
                        "not enough memory for a value of " + std::to_string(size) + " bytes");
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

class MappedMemory : public Region {
  public:
    explicit MappedMemory(std::uint64_t size) : size_(size) {
        // One huge page more than needed, so that the value can begin on one.
        if (size > SIZE_MAX - 2 * kHugePage) {
            throw Error(ErrorKind::backing, "a value larger than any memory");
        }
        length_ = size + kHugePage;
        mapping_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
        if (mapping_ == MAP_FAILED) {
            throw_errno("memory for a value of " + std::to_string(size) + " bytes");
        }
        const auto begin = reinterpret_cast<std::uintptr_t>(mapping_);
        data_ = reinterpret_cast<std::byte*>((begin + kHugePage - 1) / kHugePage * kHugePage);
        madvise(data_, size_, MADV_HUGEPAGE);  // advice: a kernel without them refuses harmlessly
    }
    MappedMemory(const MappedMemory&) = delete;
    MappedMemory& operator=(const MappedMemory&) = delete;
    ~MappedMemory() override { munmap(mapping_, length_); }
    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }

  private:
    void* mapping_;
    std::size_t length_;
    std::byte* data_;
    std::uint64_t size_;
};

}  // namespace

std::shared_ptr<Region> allocate_region(std::uint64_t size) {
    if (size < kMapAbove) {
        return std::make_shared<HeapRegion>(size);
    }
    return std::make_shared<MappedMemory>(size);
}

}  // namespace ucxstore

#include "memory/result_memory.hpp"

#include <sys/mman.h>

#include <utility>

#include "base/status.hpp"
#include "memory/huge_pages.hpp"

namespace ucxstore::memory {
namespace {

std::uint64_t whole_huge_pages(std::uint64_t size) {
    if (size > SIZE_MAX - 2 * kHugePageBytes) {
        throw base::Error(base::ErrorKind::memory, "a value larger than any memory");
    }
    return (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

}  // namespace

ResultMemory::ResultMemory(std::uint64_t size)
    : size_(size), memory_(Recycler::instance().take(whole_huge_pages(size))) {}

ResultMemory::~ResultMemory() {
    if (has_pages_) {
        munmap(memory_.data, memory_.capacity);
        owners_.clear();  // only now: what they hold was still to be seen
    } else {
        Recycler::instance().give(memory_);
    }
}

bool ResultMemory::map(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t at) {
    const base::Lock lock(mutex_);
    has_pages_ = true;
    std::byte* const begin = memory_.data + offset;
    const int protection = PROT_READ | PROT_WRITE;
    if (mmap(begin, length, protection, MAP_PRIVATE | MAP_FIXED, file, static_cast<off_t>(at)) !=
        MAP_FAILED) {
        return true;
    }
    if (mmap(begin, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED) {
        base::throw_errno("memory of a result", base::ErrorKind::memory);
    }
    return false;
}

void ResultMemory::keep(std::shared_ptr<const void> owner) {
    const base::Lock lock(mutex_);
    owners_.push_back(std::move(owner));
}

std::uint64_t ResultMemory::mapped() const {
    const base::Lock lock(mutex_);
    return owners_.size();
}

}  // namespace ucxstore::memory

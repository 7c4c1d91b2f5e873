// Huge pages, and mappings that can have them.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace ucxstore::memory {

constexpr std::uint64_t kHugePageBytes = 2ull << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which is newer than some headers

// As mmap(2) from the beginning of the file, at an address that begins on a huge page. MAP_FAILED
// as it.
inline void* map_aligned(std::uint64_t bytes, int protection, int flags, int fd) {
    if (bytes < kHugePageBytes) {
        return mmap(nullptr, bytes, protection, flags, fd, 0);
    }
    if (bytes > SIZE_MAX - 2 * kHugePageBytes) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t whole = (bytes + page - 1) / page * page;
    // Addresses are reserved, and given back, past whoever counts what a process maps: what is
    // mapped below is all that there is.
    const long reserved = syscall(SYS_mmap, nullptr, whole + kHugePageBytes, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == -1) {
        return MAP_FAILED;
    }
    const auto begin = static_cast<std::uintptr_t>(reserved);
    const std::uint64_t skip = (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
    const auto give_back = [](std::uintptr_t address, std::uint64_t length) {
        if (length > 0) {
            syscall(SYS_munmap, address, length);
        }
    };
    void* const mapped =
        mmap(reinterpret_cast<void*>(begin + skip), whole, protection, flags | MAP_FIXED, fd, 0);
    if (mapped == MAP_FAILED) {
        const int cause = errno;
        give_back(begin, whole + kHugePageBytes);
        errno = cause;
        return MAP_FAILED;
    }
    give_back(begin, skip);
    give_back(begin + skip + whole, kHugePageBytes - skip);
    return mapped;
}

}  // namespace ucxstore::memory

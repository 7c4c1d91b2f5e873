#include "memory/resident.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace ucxstore::memory {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPagesAtOnce = 4096;

constexpr uid_t kNobody = 65534;  // users of other namespaces

// Else mincore(2) says that every page is there, or its owner can make it say so meanwhile.
bool is_told(const base::Fd& file) {
    struct stat status{};
    const uid_t user = geteuid();
    return fstat(file.get(), &status) == 0 &&
           (status.st_uid == user || (user == 0 && status.st_uid != kNobody));
}

}  // namespace

bool is_resident(const base::Fd& file, const std::byte* begin, std::uint64_t bytes) {
    const std::uint64_t ahead = reinterpret_cast<std::uintptr_t>(begin) % kPage;
    auto* at = const_cast<std::byte*>(begin) - ahead;
    std::uint64_t pages = (ahead + bytes + kPage - 1) / kPage;
    std::array<unsigned char, kPagesAtOnce> there;
    while (pages > 0) {
        const std::uint64_t count = std::min(pages, kPagesAtOnce);
        if (mincore(at, count * kPage, there.data()) != 0 ||
            !std::all_of(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count),
                         [](unsigned char page) { return (page & 1) != 0; })) {
            return false;
        }
        at += count * kPage;
        pages -= count;
    }
    return is_told(file);
}

}  // namespace ucxstore::memory

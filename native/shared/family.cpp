#include "shared/family.hpp"

#include <fcntl.h>

#include <cstdio>

namespace ucxstore::shared {
namespace {

struct flock byte_of(std::uint64_t number) {
    struct flock range{};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(number);
    range.l_len = 1;
    return range;
}

}  // namespace

base::Fd open_anew(const base::Fd& file) {
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", file.get());
    return base::Fd(open(path, O_RDWR | O_CLOEXEC));
}

std::optional<std::uint64_t> lock_table(const base::Fd& opened, std::uint64_t above) {
    for (std::uint64_t number = above + 1; number < kFamilyTables; ++number) {
        struct flock range = byte_of(number);
        if (fcntl(opened.get(), F_OFD_SETLK, &range) == 0) {
            return number;
        }
    }
    return std::nullopt;
}

bool is_locked(const base::Fd& opened, std::uint64_t number) {
    struct flock range = byte_of(number);
    // Where the kernel does not tell, it is taken for locked: that frees nothing too early.
    return fcntl(opened.get(), F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

}  // namespace ucxstore::shared

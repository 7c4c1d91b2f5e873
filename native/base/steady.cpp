#include "base/steady.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

namespace ucxstore::base {

bool is_steady(const Fd& file) {
    const int seals = fcntl(file.get(), F_GET_SEALS);
    struct statfs system{};
    // Whatever has seals answers this at once.
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(file.get(), &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

}  // namespace ucxstore::base

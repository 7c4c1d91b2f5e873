#include "local/mapping.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/huge_pages.hpp"
#include "base/status.hpp"

namespace ucxstore::local {

Mapping::Mapping(const Fd& file, Access access, std::uint64_t limit) {
    struct stat status{};
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file.get(), &status) != 0) {
        throw Error(ErrorKind::protocol, "shared memory that could be cut");
    }
    // A hole in a file of reserved huge pages raises SIGBUS where none is left. Whatever has seals
    // answers this at once.
    struct statfs system{};
    if (fstatfs(file.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
        throw Error(ErrorKind::protocol, "shared memory of another kind");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (size_ == 0 || size_ > limit) {
        throw Error(ErrorKind::protocol, "shared memory of " + std::to_string(size_) + " bytes");
    }
    const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const memory = map_aligned(size_, protection, MAP_SHARED, file.get());
    if (memory == MAP_FAILED) {
        throw_errno("mapping shared memory", ErrorKind::memory);
    }
    data_ = static_cast<std::byte*>(memory);
}

Mapping::~Mapping() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

}  // namespace ucxstore::local

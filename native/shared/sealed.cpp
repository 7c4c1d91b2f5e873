#include "shared/sealed.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shared/arenas.hpp"
#include "shared/index.hpp"

namespace ucxstore::shared {
namespace {

constexpr int kSealExec = 0x20;  // F_SEAL_EXEC, which is newer than some headers
constexpr int kProof = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::uint64_t kSector = 512;  // the unit of st_blocks

}  // namespace

std::uint64_t file_bytes(std::uint64_t size, std::size_t key_bytes) {
    return Arenas::capacity(block_bytes(size, key_bytes));
}

bool seal(const base::Fd& file) {
    return fcntl(file.get(), F_ADD_SEALS, kProof | F_SEAL_SEAL) == 0;
}

bool is_sealed(const base::Fd& file, std::uint64_t bytes) {
    // Nothing here takes the lock of the inode, nor opens it: a client can hold that lock for as
    // long as it likes, in a write whose source does not come, and let open() wait by a lease.
    const int seals = fcntl(file.get(), F_GET_SEALS);
    struct statfs system{};
    struct stat status{};
    // Before Linux 6.7 a sealed file could be mapped shared only by a descriptor for reading.
    const int flags = fcntl(file.get(), F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY) {
        return false;
    }
    if (seals < 0 || (seals & kProof) != kProof || fstatfs(file.get(), &system) != 0 ||
        fstat(file.get(), &status) != 0) {
        return false;
    }
    // Not huge pages of hugetlbfs, which are of another budget.
    if (system.f_type != TMPFS_MAGIC || static_cast<std::uint64_t>(status.st_size) != bytes) {
        return false;
    }
    // From Linux 6.3 on, until that was mended in 2026, F_SEAL_EXEC on an executable file set
    // F_SEAL_WRITE, too, without a look at who could write.
    if ((seals & kSealExec) != 0 && (status.st_mode & 0111) != 0) {
        return false;
    }
    // More would be pages beyond the end, which nobody can see, but for the last huge page.
    const std::uint64_t allocated = static_cast<std::uint64_t>(status.st_blocks) * kSector;
    const std::uint64_t most =
        (bytes + Arenas::kHugePage - 1) / Arenas::kHugePage * Arenas::kHugePage;
    return allocated >= bytes && allocated <= most;
}

std::uint64_t memory_of(const base::Fd& file) {
    struct stat status{};
    // First what only files of this kind have: others may have somebody behind them, who waits.
    if (fcntl(file.get(), F_GET_SEALS) < 0 || fstat(file.get(), &status) != 0) {
        return 0;
    }
    return static_cast<std::uint64_t>(status.st_blocks) * kSector;
}

}  // namespace ucxstore::shared

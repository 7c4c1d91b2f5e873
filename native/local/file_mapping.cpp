#include "local/file_mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/status.hpp"
#include "base/steady.hpp"
#include "memory/huge_pages.hpp"

namespace ucxstore::local {

FileMapping::FileMapping(const base::Fd& file, Access access, std::uint64_t limit) {
    struct stat status{};
    if (!base::is_steady(file) || fstat(file.get(), &status) != 0) {
        throw base::Error(base::ErrorKind::protocol,
                          "shared memory that could be cut, or of another kind");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (size_ == 0 || size_ > limit) {
        throw base::Error(base::ErrorKind::protocol,
                          "shared memory of " + std::to_string(size_) + " bytes");
    }
    const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const memory = memory::map_aligned(size_, protection, MAP_SHARED, file.get());
    if (memory == MAP_FAILED) {
        base::throw_errno("mapping shared memory", base::ErrorKind::memory);
    }
    data_ = static_cast<std::byte*>(memory);
}

FileMapping::~FileMapping() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

}  // namespace ucxstore::local

#include "shared/reader_limit.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <new>
#include <string>

#include "base/status.hpp"
#include "base/steady.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::size_t kBoardBytes = 4096;
constexpr const char* kWhat = "a page that tells what readers may hold";

}  // namespace

ReaderLimit::ReaderLimit(std::uint64_t limit) {
    const base::Fd file(memfd_create("ucxstore-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file && ftruncate(file.get(), kBoardBytes) == 0) {
        memory = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (memory == MAP_FAILED) {
        base::throw_errno(kWhat, base::ErrorKind::memory);
    }
    madvise(memory, kBoardBytes, MADV_DONTFORK);
    readable_ = base::Fd(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | 0x10 /* F_SEAL_FUTURE_WRITE */ | F_SEAL_SEAL;
    if (!readable_ || fcntl(file.get(), F_ADD_SEALS, seals) != 0 ||
        fchmod(file.get(), S_IRUSR) != 0) {
        munmap(memory, kBoardBytes);
        base::throw_errno(kWhat, base::ErrorKind::memory);
    }
    memory_ = new (memory) ReaderLimitMemory{kReaderLimitMagic, limit, 0};
}

ReaderLimit::~ReaderLimit() { munmap(memory_, kBoardBytes); }

ReaderLimitView::ReaderLimitView(const base::Fd& descriptor) {
    struct stat status{};
    void* memory = MAP_FAILED;
    if (base::is_steady(descriptor) && fstat(descriptor.get(), &status) == 0 &&
        status.st_size == kBoardBytes) {
        memory = mmap(nullptr, kBoardBytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
    }
    if (memory == MAP_FAILED) {
        throw base::Error(base::ErrorKind::protocol,
                          "the reader_limit of what readers may hold cannot be used");
    }
    memory_ = static_cast<const ReaderLimitMemory*>(memory);
    if (memory_->magic != kReaderLimitMagic) {
        munmap(memory, kBoardBytes);
        throw base::Error(base::ErrorKind::protocol,
                          "the reader_limit of what readers may hold is of another kind");
    }
}

ReaderLimitView::~ReaderLimitView() {
    munmap(const_cast<ReaderLimitMemory*>(memory_), kBoardBytes);
}

}  // namespace ucxstore::shared

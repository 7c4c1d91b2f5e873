#include "local_client/allocation.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/status.hpp"
#include "base/steps.hpp"
#include "shared/index.hpp"
#include "shared/sealed.hpp"

namespace ucxstore::local_client {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which is newer than some headers

base::Fd duplicate(const base::Fd& file) { return base::Fd(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)); }

}  // namespace

Allocation::Allocation(std::string_view key, std::uint64_t size)
    : key_(key),
      size_(size),
      bytes_(shared::file_bytes(size, key.size())),
      file_(memfd_create("ucxstore-value", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    const std::string what = "memory for a value of " + std::to_string(size) + " bytes";
    if (!file_) {
        base::throw_errno(what, base::ErrorKind::resource);
    }
    if (size > shared::kMaxValueBytes || ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) {
        base::throw_errno(what, base::ErrorKind::memory);
    }
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (memory == MAP_FAILED) {
        base::throw_errno(what, base::ErrorKind::memory);
    }
    data_ = static_cast<std::byte*>(memory);
    if (madvise(data_, bytes_, kPopulateWrite) != 0 &&
        fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes_)) != 0) {
        munmap(data_, bytes_);
        base::throw_errno(what, base::ErrorKind::memory);
    }
    std::memcpy(data_ + shared::key_offset(size), key.data(), key.size());
}

Allocation::~Allocation() { munmap(data_, bytes_); }

std::shared_ptr<Allocation> Allocation::make(std::string_view key, std::uint64_t size) {
    try {
        return std::make_shared<Allocation>(key, size);
    } catch (const base::Error&) {
        return nullptr;
    }
}

// Puts a private mapping of the file in the place of the shared one: the bytes stay, and what is
// written from now on stays here. False where the kernel refuses.
bool Allocation::part() {
    constexpr int kReadWrite = PROT_READ | PROT_WRITE;
    const auto map = [this](int protection, int flags, int file) {
        return mmap(data_, bytes_, protection, flags | MAP_FIXED, file, 0) != MAP_FAILED;
    };
    if (!parted_) {
        parted_ = map(kReadWrite, MAP_PRIVATE | MAP_NORESERVE, file_.get());
        // Some kernels have unmapped the memory before they refuse. Arrays refer to it, and nothing
        // else may come to lie there.
        if (!parted_ && !map(kReadWrite, MAP_SHARED, file_.get())) {
            map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
        }
    }
    return parted_;
}

base::Fd Allocation::seal() {
    const base::Lock lock(mutex_);
    if (file_) {
        base::Fd readable(
            open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
        base::step();
        if (readable && part() && shared::seal(file_)) {
            readable_ = std::move(readable);
        }
        base::step();
        if (parted_) {
            file_.reset();
        }
    }
    return readable_ ? duplicate(readable_) : base::Fd();
}

void Allocation::send_by(const client::Link& link, client::Operation& set) {
    base::require(set.items.size() == 1 && set.items[0].key == key_,
                  "an allocation is for one value, under the key that it was made for");
    base::require(set.items[0].memory->size() == size_,
                  "a value that is not of its allocation's size");
    if (link.takes_files(size_)) {
        set.file = seal();
    }
}

void Allocation::let_go() {
    // A forked child may find it locked by a thread that it does not have.
    if (!mutex_.try_lock()) {
        return;
    }
    const base::Lock lock(mutex_, std::adopt_lock);
    if (file_ && part()) {
        file_.reset();
    }
    readable_.reset();
}

}  // namespace ucxstore::local_client

#include "shared/life.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "base/ensure.hpp"
#include "base/status.hpp"
#include "base/steady.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::size_t kLifeBytes = 4096;

}  // namespace

Life::Life() {
    const base::Fd file(memfd_create("ucxstore-life", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file && ftruncate(file.get(), kLifeBytes) == 0) {
        memory = mmap(nullptr, kLifeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (memory == MAP_FAILED) {
        base::throw_errno("a page that tells whether the server lives", base::ErrorKind::memory);
    }
    madvise(memory, kLifeBytes, MADV_DONTFORK);
    readable_ = base::Fd(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | 0x10 /* F_SEAL_FUTURE_WRITE */ | F_SEAL_SEAL;
    if (!readable_ || fcntl(file.get(), F_ADD_SEALS, seals) != 0 ||
        fchmod(file.get(), S_IRUSR) != 0) {
        munmap(memory, kLifeBytes);
        base::throw_errno("a page that tells whether the server lives", base::ErrorKind::memory);
    }
    mutex_ = static_cast<pthread_mutex_t*>(memory);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex_, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_mutex_lock(mutex_);
}

Life::~Life() {
    // What ends here has ended for readers, too.
    auto& word = reinterpret_cast<std::atomic<int>&>(mutex_->__data.__lock);
    base::ensure(pthread_mutex_unlock(mutex_) == 0, "a life ends on its own thread");
    word.store(FUTEX_OWNER_DIED, std::memory_order_seq_cst);
    munmap(mutex_, kLifeBytes);
}

LifeWatch::LifeWatch(const base::Fd& descriptor) {
    struct stat status{};
    void* memory = MAP_FAILED;
    if (base::is_steady(descriptor) && fstat(descriptor.get(), &status) == 0 &&
        status.st_size == kLifeBytes) {
        memory = mmap(nullptr, kLifeBytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
    }
    if (memory == MAP_FAILED) {
        throw base::Error(base::ErrorKind::protocol,
                          "the page of the server's life cannot be used");
    }
    mutex_ = static_cast<const pthread_mutex_t*>(memory);
}

LifeWatch::~LifeWatch() { munmap(const_cast<pthread_mutex_t*>(mutex_), kLifeBytes); }

bool LifeWatch::over() const {
    // The futex word: a thread's number while that holds the mutex, and this bit once it has ended.
    const auto& word = reinterpret_cast<const std::atomic<int>&>(mutex_->__data.__lock);
    return (word.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

}  // namespace ucxstore::shared

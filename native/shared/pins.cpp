#include "shared/pins.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <functional>
#include <thread>

#include "base/status.hpp"

namespace ucxstore::shared {

using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// ---- the server's side ----

PinTable::PinTable() : file_(memfd_create("ucxstore-pins", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    void* memory = MAP_FAILED;
    if (file_ && ftruncate(file_.get(), kPinTableBytes) == 0 &&
        fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        memory = mmap(nullptr, kPinTableBytes, PROT_READ, MAP_SHARED, file_.get(), 0);
    }
    if (memory == MAP_FAILED) {
        throw_errno("a table of pins", ErrorKind::memory);
    }
    pins_ = static_cast<const std::atomic<Place>*>(memory);
}

PinTable::~PinTable() { munmap(const_cast<std::atomic<Place>*>(pins_), kPinTableBytes); }

void PinTable::collect(std::unordered_set<Place>& pinned) const {
    for (std::uint64_t i = 0; i < kPins; ++i) {
        if (const Place place = pins_[i].load(memory_order_seq_cst)) {
            pinned.insert(place);
        }
    }
}

// ---- a reader's side ----

Pins::Pins(const Fd& descriptor) {
    struct stat status{};
    if (fstat(descriptor.get(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != kPinTableBytes) {
        throw Error(ErrorKind::protocol, "the server's table of pins is of another kind");
    }
    void* const memory =
        mmap(nullptr, kPinTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
    if (memory == MAP_FAILED) {
        throw_errno("the server's table of pins", ErrorKind::protocol);
    }
    pins_ = static_cast<std::atomic<Place>*>(memory);
}

Pins::~Pins() { munmap(pins_, kPinTableBytes); }

std::atomic<Place>* Pins::take() {
    // Threads begin at words of their own, so that they seldom meet.
    static thread_local const std::size_t begin =
        std::hash<std::thread::id>()(std::this_thread::get_id());
    for (std::size_t i = 0; i < kPinWords; ++i) {
        const std::size_t word = (begin + i) % kPinWords;
        std::uint64_t used = used_[word].load(memory_order_relaxed);
        while (~used != 0) {
            const int bit = std::countr_one(used);
            if (used_[word].compare_exchange_weak(used, used | std::uint64_t{1} << bit,
                                                  std::memory_order_acquire,
                                                  memory_order_relaxed)) {
                return &pins_[word * 64 + static_cast<std::size_t>(bit)];
            }
        }
    }
    return nullptr;
}

void Pins::give(std::atomic<Place>* pin) {
    pin->store(0, memory_order_release);
    const auto number = static_cast<std::size_t>(pin - pins_);
    used_[number / 64].fetch_and(~(std::uint64_t{1} << number % 64), memory_order_release);
}

}  // namespace ucxstore::shared

#include "shared/pins.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <functional>
#include <thread>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::shared {

using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// ---- the server's side ----

PinTable::PinTable() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        throw_errno("a pipe to a reader", ErrorKind::resource);
    }
    lifeline_ = Fd(ends[0]);
    descriptors_.lifeline = Fd(ends[1]);
    Fd file(memfd_create("ucxstore-pins", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file && ftruncate(file.get(), sizeof(PinMemory)) == 0 &&
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        memory = mmap(nullptr, sizeof(PinMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                      0);
    }
    if (memory == MAP_FAILED) {
        throw_errno("a table of pins", ErrorKind::memory);
    }
    madvise(memory, sizeof(PinMemory), MADV_DONTFORK);
    memory_ = static_cast<PinMemory*>(memory);
    descriptors_.table = std::move(file);
}

PinTable::~PinTable() { munmap(memory_, sizeof(PinMemory)); }

PinTable::Descriptors PinTable::take_descriptors() { return std::move(descriptors_); }

bool PinTable::reader_gone() const {
    pollfd entry{.fd = lifeline_.get(), .events = 0, .revents = 0};
    return poll(&entry, 1, 0) > 0;
}

PinTable::Seen PinTable::seen() const {
    return {memory_->gets.load(memory_order_relaxed), memory_->bytes.load(memory_order_relaxed)};
}

void PinTable::collect(std::unordered_set<Place>& pinned) const {
    for (const auto& pin : memory_->pins) {
        if (const Place place = pin.load(memory_order_seq_cst)) {
            pinned.insert(place);
        }
    }
}

// ---- a reader's side ----

Pins::Pins(PinTable::Descriptors descriptors) : lifeline_(std::move(descriptors.lifeline)) {
    struct stat status{};
    const int table = descriptors.table.get();
    if (fstat(table, &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != sizeof(PinMemory)) {
        throw Error(ErrorKind::protocol, "the server's table of pins is of another kind");
    }
    void* const memory =
        mmap(nullptr, sizeof(PinMemory), PROT_READ | PROT_WRITE, MAP_SHARED, table, 0);
    if (memory == MAP_FAILED) {
        throw_errno("the server's table of pins", ErrorKind::protocol);
    }
    memory_ = static_cast<PinMemory*>(memory);
}

Pins::~Pins() { munmap(memory_, sizeof(PinMemory)); }

void Pins::count(std::uint64_t bytes) {
    memory_->gets.fetch_add(1, memory_order_relaxed);
    memory_->bytes.fetch_add(bytes, memory_order_relaxed);
}

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
                return &memory_->pins[word * 64 + static_cast<std::size_t>(bit)];
            }
        }
    }
    return nullptr;
}

void Pins::give(std::atomic<Place>* pin) {
    pin->store(0, memory_order_release);
    const auto number = static_cast<std::size_t>(pin - memory_->pins);
    used_[number / 64].fetch_and(~(std::uint64_t{1} << number % 64), memory_order_release);
}

}  // namespace ucxstore::shared

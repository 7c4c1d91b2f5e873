#include "memory/recycler.hpp"

#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "base/global.hpp"
#include "base/status.hpp"
#include "memory/huge_pages.hpp"

namespace ucxstore::memory {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kHugePage = 2ull << 20;
constexpr std::uint64_t kDefaultLimit = 256ull << 20;
constexpr auto kKeepFor = 5s;

std::uint64_t limit_of_environment() {
    const char* text = std::getenv("UCXSTORE_RECYCLE_BYTES");
    if (text == nullptr || *text == '\0') {
        return kDefaultLimit;
    }
    char* end = nullptr;
    const unsigned long long limit = std::strtoull(text, &end, 10);
    return *end == '\0' ? limit : kDefaultLimit;
}

std::byte* map_at(std::byte* address, std::uint64_t capacity) {
    void* const memory = mmap(address, capacity, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != MAP_FAILED && memory != address) {  // a kernel that does not know the flag
        munmap(memory, capacity);
        return nullptr;
    }
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

Mapping map(std::uint64_t size) {
    if (size > SIZE_MAX - 2 * kHugePage) {
        throw base::Error(base::ErrorKind::memory, "a value larger than any memory");
    }
    Mapping mapping{};
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    mapping.capacity = (size + page - 1) / page * page;
    // Aligned, it has huge pages up to its edges. The kernel maps downwards, so there is room below
    // what was mapped last, most often.
    constinit static std::atomic<std::uintptr_t> last = 0;
    const std::uintptr_t top = last;
    if (top > mapping.capacity) {
        const std::uintptr_t place = (top - mapping.capacity) / kHugePage * kHugePage;
        mapping.data = map_at(reinterpret_cast<std::byte*>(place), mapping.capacity);
    }
    if (mapping.data == nullptr) {
        void* const memory =
            map_aligned(mapping.capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        mapping.data = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
    }
    if (mapping.data == nullptr) {
        base::throw_errno("memory for " + std::to_string(size) + " bytes", base::ErrorKind::memory);
    }
    last = reinterpret_cast<std::uintptr_t>(mapping.data);
    madvise(mapping.data, mapping.capacity, MADV_HUGEPAGE);  // advice: it may be refused
    if (mapping.capacity < kHugePage) {
        // It has small pages then, of which hundreds of faults cost as much as clearing them.
        mapping.present = madvise(mapping.data, mapping.capacity, kPopulateWrite) == 0;
    }
    return mapping;
}

void unmap(const Mapping& mapping) { munmap(mapping.data, mapping.capacity); }

constinit base::Global<Recycler> recycler_of_process;

}  // namespace

Recycler& Recycler::instance() {
    return *recycler_of_process.get([] { return new Recycler(limit_of_environment()); });
}

void Recycler::drop(std::list<Idle>::iterator entry, std::list<Idle>& dropped) {
    bytes_ -= entry->mapping.capacity;
    dropped.splice(dropped.end(), kept_, entry);
}

Recycler::Recycler(std::uint64_t limit)
    : limit_(limit), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!timer_) {
        base::throw_errno("creating a timer", base::ErrorKind::resource);
    }
    enlist_last();
}

Recycler::~Recycler() { strike_off(); }

Mapping Recycler::take(std::uint64_t size, Kept kept) {
    const std::uint64_t most = size + size / 8 + (kept == Kept::briefly ? kHugePage : 0);
    std::list<Idle> dropped;
    {
        const base::Lock lock(mutex_);
        auto best = kept_.end();
        for (auto entry = kept_.begin(); entry != kept_.end(); ++entry) {
            const std::uint64_t capacity = entry->mapping.capacity;
            if (capacity >= size && capacity <= most &&
                (best == kept_.end() || capacity < best->mapping.capacity)) {
                best = entry;
            }
        }
        if (best != kept_.end()) {
            Mapping mapping = best->mapping;
            mapping.present = true;
            bytes_ -= mapping.capacity;
            kept_.erase(best);
            return mapping;
        }
        for (std::uint64_t freed = 0; freed < size && !kept_.empty();) {
            freed += kept_.front().mapping.capacity;
            drop(kept_.begin(), dropped);
        }
    }
    for (const Idle& entry : dropped) {
        unmap(entry.mapping);
    }
    return map(size);
}

void Recycler::give(const Mapping& mapping) {
    std::list<Idle> added;
    try {
        added.push_back({mapping, std::chrono::steady_clock::now()});
    } catch (const std::bad_alloc&) {  // called by destructors
        unmap(mapping);
        return;
    }
    std::list<Idle> dropped;
    {
        const base::Lock lock(mutex_);
        kept_.splice(kept_.end(), added);
        bytes_ += mapping.capacity;
        if (kept_.size() == 1) {
            set_timer();
        }
        while (bytes_ > limit_) {
            drop(kept_.begin(), dropped);
        }
    }
    for (const Idle& entry : dropped) {
        unmap(entry.mapping);
    }
}

void Recycler::trim() {
    const TimePoint now = std::chrono::steady_clock::now();
    std::uint64_t expirations;
    static_cast<void>(!::read(timer_.get(), &expirations, sizeof(expirations)));
    std::list<Idle> dropped;
    {
        const base::Lock lock(mutex_);
        while (!kept_.empty() && kept_.front().since + kKeepFor <= now) {
            drop(kept_.begin(), dropped);
        }
        if (!kept_.empty()) {
            set_timer();
        }
    }
    for (const Idle& entry : dropped) {
        unmap(entry.mapping);
    }
}

void Recycler::set_timer() {
    itimerspec when{};
    when.it_value.tv_sec = std::chrono::seconds(kKeepFor).count();
    timerfd_settime(timer_.get(), 0, &when, nullptr);
}

std::uint64_t Recycler::kept() const {
    const base::Lock lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore::memory

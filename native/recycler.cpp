#include "recycler.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "status.hpp"

namespace ucxstore {
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

Mapping map(std::uint64_t size) {
    if (size > SIZE_MAX - 2 * kHugePage) {
        throw Error(ErrorKind::backing, "a value larger than any memory");
    }
    Mapping mapping{};
    mapping.capacity = (size + kHugePage - 1) / kHugePage * kHugePage;
    mapping.length = mapping.capacity + kHugePage;  // so that it can begin on a huge page
    mapping.base =
        mmap(nullptr, mapping.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping.base == MAP_FAILED) {
        throw_errno("memory for " + std::to_string(size) + " bytes");
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.base);
    mapping.data = reinterpret_cast<std::byte*>((begin + kHugePage - 1) / kHugePage * kHugePage);
    madvise(mapping.data, mapping.capacity, MADV_HUGEPAGE);  // advice: it may be refused
    return mapping;
}

void unmap(const Mapping& mapping) { munmap(mapping.base, mapping.length); }

}  // namespace

Recycler& Recycler::instance() {
    static Recycler* recycler = [] {
        auto* one = new Recycler(limit_of_environment());  // never destroyed: regions outlive it
        pthread_atfork([] { instance().lock(); }, [] { instance().unlock(); },
                       [] { instance().unlock(); });
        return one;
    }();
    return *recycler;
}

void Recycler::drop(std::list<Kept>::iterator entry, std::list<Kept>& dropped) {
    bytes_ -= entry->mapping.capacity;
    dropped.splice(dropped.end(), kept_, entry);
}

Mapping Recycler::take(std::uint64_t size) {
    std::list<Kept> dropped;
    {
        const std::lock_guard lock(mutex_);
        auto best = kept_.end();
        for (auto entry = kept_.begin(); entry != kept_.end(); ++entry) {
            const std::uint64_t capacity = entry->mapping.capacity;
            // Not much larger: the rest would lie idle for as long as the value lives.
            if (capacity >= size && capacity <= size + size / 8 + kHugePage &&
                (best == kept_.end() || capacity < best->mapping.capacity)) {
                best = entry;
            }
        }
        if (best != kept_.end()) {
            const Mapping mapping = best->mapping;
            bytes_ -= mapping.capacity;
            kept_.erase(best);
            return mapping;
        }
        for (std::uint64_t freed = 0; freed < size && !kept_.empty();) {
            freed += kept_.front().mapping.capacity;
            drop(kept_.begin(), dropped);
        }
    }
    for (const Kept& entry : dropped) {
        unmap(entry.mapping);
    }
    return map(size);
}

void Recycler::give(const Mapping& mapping) {
    std::list<Kept> dropped;
    {
        const std::lock_guard lock(mutex_);
        kept_.push_back({mapping, std::chrono::steady_clock::now()});
        bytes_ += mapping.capacity;
        while (bytes_ > limit_) {
            drop(kept_.begin(), dropped);
        }
    }
    for (const Kept& entry : dropped) {
        unmap(entry.mapping);
    }
}

Recycler::TimePoint Recycler::trim(TimePoint now) {
    std::list<Kept> dropped;
    TimePoint next = TimePoint::max();
    {
        const std::lock_guard lock(mutex_);
        while (!kept_.empty() && kept_.front().since + kKeepFor <= now) {
            drop(kept_.begin(), dropped);
        }
        if (!kept_.empty()) {
            next = kept_.front().since + kKeepFor;
        }
    }
    for (const Kept& entry : dropped) {
        unmap(entry.mapping);
    }
    return next;
}

std::uint64_t Recycler::kept() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore

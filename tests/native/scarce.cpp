#include "scarce.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <string_view>

namespace {

constexpr std::int64_t kPlenty = std::numeric_limits<std::int64_t>::max() / 2;

std::atomic<bool> scarce = false;
std::atomic<std::int64_t> left = kPlenty;
std::atomic<const char*> starving = "";

bool is_one_of_them() {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return std::string_view(name).starts_with(starving.load());
}

void* allocate(std::size_t size) {
    if (scarce.load() && is_one_of_them() && left.fetch_sub(1) == 0) {
        return nullptr;
    }
    return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

// In place of the sanitizers' own, which pair them in the same way.
void* operator new(std::size_t size) {
    if (void* const memory = allocate(size)) {
        return memory;
    }
    throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ucxstore::test {

ScarceMemory::ScarceMemory(std::size_t after, const char* of_threads) {
    starving = of_threads;
    left = static_cast<std::int64_t>(after);
    scarce = true;
}

ScarceMemory::~ScarceMemory() { scarce = false; }

bool ScarceMemory::ran_out() const { return left < 0; }

}  // namespace ucxstore::test

#include "memory/joined_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "memory/huge_pages.hpp"

namespace ucxstore::memory {
namespace {

class JoinedMemory final : public Region {
  public:
    JoinedMemory(void* memory, std::uint64_t size)
        : data_(static_cast<std::byte*>(memory)), size_(size) {}
    ~JoinedMemory() override { munmap(data_, size_); }
    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }
    bool read_only() const override { return true; }

  private:
    std::byte* const data_;
    const std::uint64_t size_;
};

// Of a shared mapping, a second one with the same pages: see mremap(2), of an old size of 0.
bool map_again(std::span<const std::byte> part, std::byte* target) {
    return mremap(const_cast<std::byte*>(part.data()), 0, part.size(),
                  MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED;
}

}  // namespace

std::shared_ptr<Region> join(std::span<const std::span<const std::byte>> parts) {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    std::uint64_t size = 0;
    for (const auto& part : parts) {
        if (part.empty() || reinterpret_cast<std::uintptr_t>(part.data()) % page != 0 ||
            part.size() % page != 0 || part.size() > SIZE_MAX - size) {
            return nullptr;
        }
        size += part.size();
    }
    // From a huge page on, so that huge pages of the parts can be mapped as such.
    void* const memory =
        size == 0 ? MAP_FAILED
                  : map_aligned(size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    std::shared_ptr<JoinedMemory> joined;
    try {
        joined = std::make_shared<JoinedMemory>(memory, size);
    } catch (...) {
        munmap(memory, size);
        throw;
    }
    std::byte* target = joined->data();
    for (const auto& part : parts) {
        if (!map_again(part, target)) {
            return nullptr;
        }
        target += part.size();
    }
    return joined;
}

}  // namespace ucxstore::memory

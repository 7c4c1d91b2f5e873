// Memory for a result, over which pages of files can be mapped in place of copies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "memory/recycler.hpp"
#include "memory/region.hpp"

namespace ucxstore::memory {

// Of whole huge pages, recycled after use unless something was mapped over it: then it goes back to
// the kernel. Whoever has it writes to it as to any other memory: what is mapped is copied page by
// page as it is first written.
class ResultMemory final : public Region {
  public:
    // Throws Error(memory).
    explicit ResultMemory(std::uint64_t size);
    ResultMemory(const ResultMemory&) = delete;
    ResultMemory& operator=(const ResultMemory&) = delete;
    ~ResultMemory() override;

    std::byte* data() const override { return memory_.data; }
    std::uint64_t size() const override { return size_; }
    // What it has in all; the rest behind its size belongs to nobody.
    std::uint64_t capacity() const { return memory_.capacity; }

    // Whether any page is worth it: by default, there must be so many that a copy takes longer.
    bool eager = false;

    // Replaces its bytes [offset, offset + length) by those of the file from `at` on. Offset,
    // length, and the place in the file are of whole pages. False where the kernel refuses: then
    // they are anything. Throws Error(memory) where they are not even there any more.
    bool map(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t at);
    // Of a value that was mapped, all of it or in part: what must stay until this memory goes.
    void keep(std::shared_ptr<const void> owner);
    // The number of such values.
    std::uint64_t mapped() const;

  private:
    const std::uint64_t size_;
    const Mapping memory_;
    mutable base::Mutex mutex_;
    bool has_pages_ GUARDED_BY(mutex_) = false;
    std::vector<std::shared_ptr<const void>> owners_ GUARDED_BY(mutex_);
};

}  // namespace ucxstore::memory

#include "files/mapped_file.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace ucxstore::files {
namespace {

// Of this process. A forked child has its parent's mappings, and so counts on from there.
std::atomic<std::uint64_t> mapped_files = 0;

class MappedFile final : public memory::Region {
  public:
    MappedFile(void* memory, std::uint64_t size)
        : data_(static_cast<std::byte*>(memory)), size_(size) {}
    ~MappedFile() override {
        munmap(data_, size_);
        --mapped_files;
    }
    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }
    bool read_only() const override { return true; }

  private:
    std::byte* const data_;
    const std::uint64_t size_;
};

// There is nothing to map.
class EmptyFile final : public memory::Region {
  public:
    std::byte* data() const override { return const_cast<std::byte*>(&byte_); }
    std::uint64_t size() const override { return 0; }
    bool read_only() const override { return true; }

  private:
    const std::byte byte_{};
};

}  // namespace

std::shared_ptr<memory::Region> map_file(const base::Fd& file, std::uint64_t size) {
    if (size == 0) {
        return std::make_shared<EmptyFile>();
    }
    if (++mapped_files > kMostMappedFiles) {
        --mapped_files;
        return nullptr;
    }
    // Shared: of a file that is open for reading alone, nobody can make such pages writable
    // afterwards, not even for himself.
    void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) {
        --mapped_files;
        return nullptr;
    }
    try {
        return std::make_shared<MappedFile>(memory, size);
    } catch (...) {
        munmap(memory, size);
        --mapped_files;
        throw;
    }
}

}  // namespace ucxstore::files

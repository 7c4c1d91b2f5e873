// FileWriter: write a value that comes in fragments to its file, in few and large writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/handle.hpp"
#include "memory/region.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::storage {

// A file is written by write(), and not through a mapping: the page cache then holds it in large
// folios, which take a fraction of the time to fill and to map again, and no page is cleared
// first. Fragments are collected in a buffer, as the size of a write decides that of the folios.
class FileWriter {
  public:
    // `file` gets `size` bytes. If the disk is full, it waits for `reclaimer`. Both must outlive
    // it.
    FileWriter(const base::Fd& file, std::uint64_t size, threads::Reclaimer& reclaimer)
        : file_(file), size_(size), reclaimer_(reclaimer) {}

    // Takes bytes of the value from `offset` on; each comes once. A failure shows in finish().
    void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept;

    // Writes what is still in the buffer. Returns an errno, of the first failure, or 0.
    int finish() noexcept;

  private:
    struct Buffer;
    bool take_buffer() noexcept;
    // The end of what the buffer may hold: a multiple of its size, or that of the value.
    std::uint64_t buffer_end() const;
    void flush() noexcept;
    void put(std::uint64_t offset, std::span<const std::byte> bytes) noexcept;

    const base::Fd& file_;
    const std::uint64_t size_;
    threads::Reclaimer& reclaimer_;
    std::shared_ptr<Buffer> buffer_;
    std::uint64_t begin_ = 0;     // where the buffer's bytes begin in the value
    std::uint64_t buffered_ = 0;  // how many it has
    int failure_ = 0;
};

}  // namespace ucxstore::storage

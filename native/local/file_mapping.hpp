// A shared mapping of a file that another process of this host has made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/handle.hpp"

namespace ucxstore::local {

class FileMapping {
  public:
    enum class Access { read, write };
    // All of the file, which is sealed so that it cannot be cut, and of ordinary pages: it never
    // raises SIGBUS. Throws Error(protocol) where it is not, or is larger than `limit`.
    FileMapping(const base::Fd& file, Access access, std::uint64_t limit);
    FileMapping(FileMapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
    FileMapping& operator=(FileMapping&&) = delete;
    ~FileMapping();

    std::byte* data() const { return data_; }
    std::uint64_t size() const { return size_; }

  private:
    std::byte* data_;
    std::uint64_t size_;
};

}  // namespace ucxstore::local

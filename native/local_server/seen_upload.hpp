// The memory in which a client of this host sends its values, as the server sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/handle.hpp"
#include "local/file_mapping.hpp"
#include "memory/copier.hpp"

namespace ucxstore::local_server {

// To read it takes no memory of the server's: its holes are zeros, and stay holes.
class SeenUpload {
  public:
    // Throws Error(protocol) for what is no upload, and leaves that to the caller.
    explicit SeenUpload(base::Fd&& file);

    std::uint64_t size() const { return mapping_.size(); }
    // Copies what lies at this place.
    void copy(std::uint64_t place, std::span<std::byte> target, memory::Write how) const;
    // Hands it over, in pieces.
    using Take = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;
    void pass(std::uint64_t place, std::uint64_t length, const Take& take) const;

  private:
    bool is_there(std::uint64_t place, std::uint64_t length) const;
    void read(std::uint64_t place, std::span<std::byte> target) const;

    const local::FileMapping mapping_;
    const base::Fd file_;
};

}  // namespace ucxstore::local_server

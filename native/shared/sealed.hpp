// Files of clients, each with one value, that nobody can change any more: a server keeps the value
// where it lies, in place of a copy.
//
// The kernel proves it. F_SEAL_WRITE is refused while anybody has the file mapped shared and could
// write, or a device may still write to its pages. From then on nobody can, whatever descriptors
// and mappings he has. Seals cannot be taken off.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/handle.hpp"

namespace ucxstore::shared {

// Values from this size on may come in a file. To seal and map one of fewer bytes costs as much as
// to copy them.
constexpr std::uint64_t kLeastInFile = 1ull << 20;

// The size of the file for a value and its key, which lie in it as in a block (index.hpp).
std::uint64_t file_bytes(std::uint64_t size, std::size_t key_bytes);

// The writer's side: seals a memfd. False where that is refused. It may take 0.2 s where a device
// holds pages of it.
bool seal(const base::Fd& file);

// The other side: whether this is a sealed file of just so many bytes. It does not wait for
// anything that a client could hold up. Whether all of them are there, is_resident() tells: then to
// read them takes no memory, as nobody can take any out.
bool is_sealed(const base::Fd& file, std::uint64_t bytes);
// The memory that a memfd has; 0 for any other file.
std::uint64_t memory_of(const base::Fd& file);

}  // namespace ucxstore::shared

// Whether pages of a file in memory are there already, so that to read them takes no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/handle.hpp"

namespace ucxstore::memory {

// Of this part of a mapping of the file. False also where the kernel does not tell it to this
// process, as of a file of another user. It waits for nobody: unlike SEEK_HOLE, it does not take
// the lock of the inode, which others may hold for long.
bool is_resident(const base::Fd& file, const std::byte* begin, std::uint64_t bytes);

}  // namespace ucxstore::memory

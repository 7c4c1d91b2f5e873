// A value in a file, mapped so that nobody has to copy it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/handle.hpp"
#include "memory/region.hpp"

namespace ucxstore::files {

// The first `size` bytes of a file that is open for reading, to read. They are the kernel's own
// pages of it: to hold them takes no memory, and keeps the file on the disk when it is replaced or
// removed. Who cuts the file ends whoever reads behind its end, by SIGBUS; who writes to it is
// seen. So it is for those who have asked for it. nullptr where it cannot be mapped, or this
// process has mapped so many files that it may need the rest of its mappings for something else.
std::shared_ptr<memory::Region> map_file(const base::Fd& file, std::uint64_t size);

// Of the 65,530 mappings that Linux lets a process have, unless vm.max_map_count says otherwise.
// Without any, it gets no memory either.
constexpr std::uint64_t kMostMappedFiles = 16 << 10;

}  // namespace ucxstore::files

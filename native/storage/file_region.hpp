// A value in a file, which is read as it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/handle.hpp"
#include "memory/region.hpp"

namespace ucxstore::storage {

// The content of `file`: read at once where it is small, and by Region::locate() else. Never
// through a mapping: whoever cuts a mapped file, and a disk that fails, end the process that
// touches it by SIGBUS. A read that fails throws Error(storage), which names `key`.
std::shared_ptr<const memory::Region> read_file(base::Fd file, const std::string& key);

// The content of a file of so many bytes, none of which are read before locate(). It has no
// version.
std::shared_ptr<memory::Region> file_region(base::Fd file, std::uint64_t size,
                                            const std::string& key);

// Of every such region: its data(), and its most_at_once(), which is a part of a core's own cache,
// so that what was read is still in there when it is sent.
std::byte* file_origin();
constexpr std::uint64_t kReadAtOnce = 1 << 20;

}  // namespace ucxstore::storage

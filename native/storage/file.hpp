// Values in files: mapped for reading, and written without a name until they are whole.
#pragma once

#include "base/handle.hpp"
#include "files/directory_root.hpp"
#include "storage/reclaimer.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// The content of `file`, mapped, or read where it is small. `key` is for messages.
std::shared_ptr<const Region> map_file(const Fd& file, const std::string& key);

// Writes a value into the file `key` under `root`. `reclaimer` frees the file that it replaces.
std::unique_ptr<Incoming> receive_file(const DirectoryRoot& root, Reclaimer& reclaimer,
                                       const std::string& key, std::uint64_t size);

}  // namespace ucxstore

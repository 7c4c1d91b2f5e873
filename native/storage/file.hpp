// Files as values: mapped for reading, and filled under no name before they get theirs.
#pragma once

#include "base/handle.hpp"
#include "storage/directory_root.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// The content of `file`, mapped, or read where it is small. `key` is for messages.
std::shared_ptr<const Region> map_file(const Fd& file, const std::string& key);

// A value on its way into the file `key` under `root`.
std::unique_ptr<Incoming> receive_file(const DirectoryRoot& root, const std::string& key,
                                       std::uint64_t size);

// Whether this is the name of one of our unfinished files, which is no key.
bool is_unfinished(const std::string& name);

}  // namespace ucxstore

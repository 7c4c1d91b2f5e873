// Files that hold values: what tells two of them apart, and which names are no values.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace ucxstore::files {

// The version of the value in a file: the same for every process that looks.
std::uint64_t version_of(const struct stat& about);

// Whether the file has changed so lately that another one could get the same version: the clock of
// a file system stands still for some milliseconds, in which an inode may be used again.
bool is_recent(const struct stat& about);

// A name for a file that is not finished, which no other one has.
std::string unfinished_name();
bool is_unfinished_name(std::string_view name);
// Whether a file of this name, or under this key, is one of our own, which are no keys: it is not
// finished, or says which set of servers the storage belongs to.
bool is_our_own(std::string_view key);

}  // namespace ucxstore::files

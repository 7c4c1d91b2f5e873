// Which keys there are, for both sides: no I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ucxstore::wire {

// Keys are object-store keys: S3 takes 1,024 bytes.
constexpr std::size_t kMaxKeyBytes = 1024;

// Why no server takes this key; nullopt if it is fine.
std::optional<std::string> key_fault(std::string_view key);

// The same for a prefix: "" or the beginning of keys; `whole` where it must end in "/".
std::optional<std::string> prefix_fault(std::string_view prefix, bool whole);

}  // namespace ucxstore::wire

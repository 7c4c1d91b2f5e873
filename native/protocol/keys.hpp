// Which keys there are, for both sides: no I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ucxstore::wire {

// Keys are object-store keys: S3 takes 1,024 bytes.
constexpr std::size_t kMaxKeyBytes = 1024;

// Scratch spaces are the folders of this one, at every server, whatever else it serves. Their names
// have as many hexadecimal digits: nobody guesses one.
constexpr std::string_view kScratchFolder = "__ucxscratch__/";
constexpr std::size_t kSpaceNameBytes = 32;

// What clients note for one another of which starts of servers they have met, at every server,
// whatever else it serves: see docs/cluster.md.
constexpr std::string_view kStartsFolder = "__ucxstarts__/";

// Whether a key, or all keys that begin so, are such notes.
bool is_note(std::string_view key);

// The name of the scratch space that a key is in, or all keys that begin so; nullopt for none.
std::optional<std::string_view> space_of(std::string_view key);
bool is_space_name(std::string_view name);

// Why no server takes this key; nullopt if it is fine.
std::optional<std::string> key_fault(std::string_view key);

// The same for a prefix: "" or the beginning of keys; `whole` where it must end in "/".
std::optional<std::string> prefix_fault(std::string_view prefix, bool whole);

}  // namespace ucxstore::wire

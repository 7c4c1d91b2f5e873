// Checks of keys and prefixes, and the folders that every server reserves. For both sides; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ucxstore::protocol {

// Keys are object-store keys: S3 takes 1,024 bytes.
constexpr std::size_t kMaxKeyBytes = 1024;

// Scratch spaces are the folders in this folder, at every server, whatever else it serves. Their
// names have this many hexadecimal digits, so nobody guesses one.
constexpr std::string_view kScratchFolder = "__ucxscratch__/";
constexpr std::size_t kSpaceNameBytes = 32;
// After these, where a space frees what has been read once: so whoever has a key knows.
constexpr std::string_view kReadOnce = "once";

// Decoded values (cache/decoded_values.hpp) are named in this folder, at every server. Nothing else
// is in it: they are only read.
constexpr std::string_view kDecodedFolder = "__ucxdecoded__/";
constexpr std::size_t kDigestBytes = 32;

// Beneath this, servers keep what is theirs in a storage: it has no keys.
constexpr std::string_view kReservedFolder = ".ucxstore/";

// The name of the scratch space that a key, or every key with a prefix, is in; nullopt for none.
std::optional<std::string_view> space_of(std::string_view key);
bool is_space_name(std::string_view name);
// Whether a key is of a value that is freed once it has been read: zarr's metadata is not.
bool is_read_once(std::string_view key);
// Whether a key is of zarr's metadata. Without it, zarr does not find the arrays and groups whose
// chunks are there.
bool is_metadata(std::string_view key);
// The folder of all keys that are in one scratch space, or none, with this one. "" for none.
std::string_view folder_of_space(std::string_view key);

// Which bytes of a stored value are a chunk's.
struct StoredBytes {
    bool all = true;
    std::uint64_t begin = 0;  // if not all of them
    std::uint64_t end = 0;
};
// A key in kDecodedFolder: "DIGEST/all/KEY", or "DIGEST/BEGIN-END/KEY".
struct DecodedName {
    std::string_view digest;  // of the recipe
    StoredBytes bytes;
    std::string_view key;  // of the stored value
};
bool is_decoded(std::string_view key);
// nullopt for another key, and one that is not written so.
std::optional<DecodedName> decoded_name(std::string_view key);

// The name of the shelf that the value of a key may be on: its scratch space, or kDecodedShelf;
// nullopt for the server's own shelf.
constexpr std::string_view kDecodedShelf = "decoded";
std::optional<std::string_view> shelf_of(std::string_view key);
bool is_shelf_name(std::string_view name);

// Why no server takes this key; nullopt if it is fine.
std::optional<std::string> key_fault(std::string_view key);

// The same for a prefix. If `whole`, it must be "" or end in "/".
std::optional<std::string> prefix_fault(std::string_view prefix, bool whole);

}  // namespace ucxstore::protocol

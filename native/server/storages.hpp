// The storages of a server: of its values, of scratch spaces, of clients' notes.
#pragma once

#include <memory>
#include <string>

#include "cache/cached_source.hpp"
#include "storage/memory.hpp"
#include "storage/spaces.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// For clients' notes: some thousands of them, of a few for each set of servers that a store names.
constexpr std::uint64_t kStartsBytes = 4 << 20;

// Shared by all threads of the server; it never changes.
struct Storages {
    Storages(std::shared_ptr<Storage> values, std::shared_ptr<Spaces> scratch = nullptr)
        : local(std::move(values)), spaces(std::move(scratch)) {}
    Storages(std::shared_ptr<CachedSource> values, std::shared_ptr<Spaces> scratch = nullptr)
        : source(std::move(values)), spaces(std::move(scratch)) {}

    // Where a key's value is; nullptr for `source`. Throws Error(scratch_ended), and Error(storage)
    // where it is of a scratch space and none are offered.
    std::shared_ptr<Storage> storage_of(const std::string& key) const;
    // Throws Error(storage) where scratch spaces are not offered.
    Spaces& offered_spaces() const;

    // One of these two has the values; the other one is nullptr.
    std::shared_ptr<Storage> local;
    std::shared_ptr<CachedSource> source;
    std::shared_ptr<Spaces> spaces;  // nullptr where none are offered
    // Clients' notes of starts, which end with the process, as they must.
    std::shared_ptr<Storage> starts = std::make_shared<MemoryStorage>(
        std::make_shared<Quota>(kStartsBytes, "clients' notes of starts"), true);
};

}  // namespace ucxstore

// The storages of a server: for its values, and for scratch spaces.
#pragma once

#include <memory>
#include <string>

#include "cache/cached_source.hpp"
#include "cache/decoded_values.hpp"
#include "shared/session_page.hpp"
#include "storage/memory.hpp"
#include "storage/spaces.hpp"
#include "storage/storage.hpp"

namespace ucxstore::sessions {

// Shared by all threads of the server; it never changes.
struct Storages {
    Storages(std::shared_ptr<storage::Storage> values,
             std::shared_ptr<storage::Spaces> scratch = nullptr)
        : shelf(values->shelf()),
          root(values->root()),
          local(std::move(values)),
          spaces(std::move(scratch)) {}
    Storages(std::shared_ptr<cache::CachedSource> values,
             std::shared_ptr<storage::Spaces> scratch = nullptr)
        : shelf(values->shelf()), source(std::move(values)), spaces(std::move(scratch)) {}

    // The storage of a key's value; nullptr for `source`. For a key in a scratch space, throws
    // Error(scratch_ended) where that has ended, and Error(storage) where none are offered.
    std::shared_ptr<storage::Storage> storage_of(const std::string& key) const;
    // Throws Error(storage) where scratch spaces are not offered.
    storage::Spaces& offered_spaces() const;
    // What clients of this host read by themselves, and the memory that is for that.
    base::ShelfCounts shown_counts() const;

    // The values in memory, and what the cache in front of the source has done.
    base::MemoryCounts memory_counts() const {
        return local == nullptr ? base::MemoryCounts() : local->memory();
    }
    base::CacheCounts cache_counts() const;
    base::DecodedCounts decoded_counts() const {
        return decoded == nullptr ? base::DecodedCounts() : decoded->counts();
    }

    // The limit of the memory that values are in; nullptr for none.
    std::shared_ptr<storage::Quota> memory_limit() const {
        return local == nullptr ? nullptr : local->memory_limit();
    }

    // Whether calls that look at many keys wait for a disk, mostly.
    bool walks_wait() const { return root >= 0; }

    // Drops what is kept for clients that have gone.
    void forget_gone() const;

    // Where clients of this host see values themselves; nullptr for nowhere.
    std::shared_ptr<shared::Shelf> shelf;
    // The directory in which they see files themselves, as Storage::root(); and what they read.
    int root = -1;
    std::shared_ptr<shared::SessionPages> readers = std::make_shared<shared::SessionPages>();
    // One of these two has the values; the other one is nullptr.
    std::shared_ptr<storage::Storage> local;
    std::shared_ptr<cache::CachedSource> source;
    std::shared_ptr<storage::Spaces> spaces;  // nullptr where none are offered
    // What was decoded of the values of these two; nullptr where that is not offered.
    std::shared_ptr<cache::DecodedValues> decoded;
};

}  // namespace ucxstore::sessions

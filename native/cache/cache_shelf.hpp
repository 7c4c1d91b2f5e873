// The shelf of a cache: whole values lie there, and other processes of this host see those that are
// fresh.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.hpp"
#include "shared/shelf.hpp"

namespace ucxstore::cache {

// A shelf for a cache of so many bytes. `keep_bytes`: see ShelfOptions.
std::shared_ptr<shared::Shelf> make_cache_shelf(std::uint64_t cache_bytes,
                                                std::uint64_t keep_bytes = 0);

// What the cache must know of it; nullptr for no shelf.
std::unique_ptr<Cache::Readers> readers_of(std::shared_ptr<shared::Shelf> shelf);

}  // namespace ucxstore::cache

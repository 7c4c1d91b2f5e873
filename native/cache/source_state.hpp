// What the classes behind CachedSource share: calls, counters, the cache.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.hpp"
#include "cache/calls.hpp"
#include "cache/later.hpp"
#include "cache/object_cache.hpp"

namespace ucxstore::cache {

using SourceValue = std::shared_ptr<const memory::Region>;

struct SourceCounters {
    std::atomic<std::uint64_t> hits = 0;
    std::atomic<std::uint64_t> misses = 0;
    std::atomic<std::uint64_t> joined = 0;  // misses that waited for a request already under way
};

struct SourceState {
    // As for ObjectCache.
    SourceState(std::uint64_t bytes, std::uint64_t block_bytes, std::chrono::milliseconds freshness,
                Cache::Now now, std::shared_ptr<shared::Shelf> shelf)
        : objects(bytes, block_bytes, freshness, std::move(now), std::move(shelf)) {}

    Calls calls;
    SourceCounters counters;

    // Guards what follows, and the flights of WholeFetches and BlockFetches. Not held while `calls`
    // or a Later is called.
    base::Mutex mutex;
    ObjectCache objects GUARDED_BY(mutex);

    // Whether what is fetched now may be older than a change.
    bool changes_now(const std::string& key) REQUIRES(mutex) { return objects.lease().asks(key); }
};

}  // namespace ucxstore::cache

// What the parts of a cached source share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "cache/calls.hpp"
#include "cache/changes.hpp"
#include "cache/later.hpp"
#include "cache/object_cache.hpp"

namespace ucxstore {

using SourceValue = std::shared_ptr<const Region>;

struct SourceCounters {
    std::atomic<std::uint64_t> hits = 0;
    std::atomic<std::uint64_t> misses = 0;
    std::atomic<std::uint64_t> joined = 0;  // misses that waited for another one's request
};

struct SourceState {
    // As for ObjectCache.
    SourceState(std::uint64_t bytes, std::uint64_t block_bytes, std::chrono::milliseconds freshness,
                Cache::Now now)
        : objects(bytes, block_bytes, freshness, std::move(now)) {}

    Calls calls;
    SourceCounters counters;

    // Whatever else stands here, and the flights of each part, only under this. Neither `calls` nor
    // a Later is called meanwhile.
    std::mutex mutex;
    ObjectCache objects;
    Changes changes;
};

}  // namespace ucxstore

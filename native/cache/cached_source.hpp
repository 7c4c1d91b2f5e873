// A source that takes its time, an object store mostly, with a cache in front. Nothing here waits.
// Called from every progress thread of the server at once, and by whoever carries the calls out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cache/block_fetches.hpp"
#include "cache/source_state.hpp"
#include "cache/whole_fetches.hpp"
#include "cache/write_budget.hpp"

namespace ucxstore {

class CachedSource {
  public:
    using Value = SourceValue;

    static constexpr auto kForEver = ObjectCache::kForEver;
    static constexpr std::uint64_t kWriteBytes = 256ull << 20;

    // Objects of more than two blocks are fetched and kept in blocks, unless most of one is wanted;
    // none are where a block has no bytes.
    // What is in the cache is believed for as long as `freshness`, and then asked about.
    // Values on their way to the source take `write_bytes` at the most, or are one alone.
    CachedSource(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                 std::chrono::milliseconds freshness = kForEver,
                 std::uint64_t write_bytes = kWriteBytes, Cache::Now now = Cache::Clock::now)
        : block_(block_bytes),
          writes_(write_bytes),
          state_(cache_bytes, block_bytes, freshness, std::move(now)) {}
    CachedSource(const CachedSource&) = delete;
    CachedSource& operator=(const CachedSource&) = delete;

    // The value if what is wanted of it is in the cache; then nothing else has to be done.
    Value find(const std::string& key, const wire::Selection& wanted = {});
    // The value, or nullptr where the key has none; of a large one, the blocks that are wanted. One
    // request for an object or a block, however many ask meanwhile.
    void fetch(const std::string& key, const wire::Selection& wanted, Later<Value> then);
    // Memory for a value that is to be written. Throws Error(storage) where there is not enough.
    std::shared_ptr<Region> receive(std::uint64_t size);
    // Puts the value under its key; false where it was to be a new key and was not. Once it is
    // there, the cache holds it.
    void write(const std::string& key, std::shared_ptr<Region> value, bool if_absent,
               Later<bool> then);
    void call(StorageCall call, Later<CallResult> then);

    Calls& calls() { return state_.calls; }
    // Of values that are written, from when they are received until they are stored.
    WriteBudget& writes() { return writes_; }
    const SourceCounters& counters() const { return state_.counters; }
    std::uint64_t cached_bytes();
    std::uint64_t evicted();
    // Every call has failed, and nothing is held.
    void close(const std::string& why);

  private:
    bool is_stale(const std::string& key);
    // Whether the value may be kept: its key was not changed meanwhile.
    bool stored(const std::string& key, std::shared_ptr<Region> value, CallResult result,
                const Later<bool>& then);
    // These two under the lock: what was asked for before a change is not kept, nor joined.
    void begin_change(const std::string& key);
    bool end_change(const std::string& key);
    void begin_removal(const StorageCall& call);
    void end_removal(const StorageCall& call);

    const std::uint64_t block_;
    WriteBudget writes_;
    SourceState state_;
    WholeFetches wholes_{state_};
    BlockFetches blocks_{state_, wholes_, block_};
};

}  // namespace ucxstore

// A source, mostly an object store, behind a cache. Nothing here waits. All progress threads of the
// server call it at once, and so does the thread that carries the calls out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/block_fetches.hpp"
#include "cache/source_state.hpp"
#include "cache/whole_fetches.hpp"
#include "storage/write_budget.hpp"

namespace ucxstore::cache {

class CachedSource {
  public:
    using Value = SourceValue;
    struct Names {
        std::vector<std::string> keys;
        std::vector<std::string> prefixes;
    };

    static constexpr auto kForEver = ObjectCache::kForEver;
    static constexpr std::uint64_t kWriteBytes = 256ull << 20;

    // Objects of more than two blocks are fetched and kept in blocks, unless most of one is wanted;
    // none are where a block has no bytes.
    // A cached value is believed for `freshness`. Then the source is asked whether it has changed.
    // Values on their way to the source take at most `write_bytes`, unless there is only one.
    // `shelf`: where other processes see whole values; nullptr for nowhere.
    CachedSource(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                 std::chrono::milliseconds freshness = kForEver,
                 std::uint64_t write_bytes = kWriteBytes, Cache::Now now = Cache::Clock::now,
                 std::shared_ptr<shared::Shelf> shelf = nullptr)
        : block_(block_bytes),
          shelf_(std::move(shelf)),
          writes_(write_bytes),
          state_(cache_bytes, block_bytes, freshness, std::move(now), shelf_) {}
    // One with a shelf, if `visible`.
    static std::shared_ptr<CachedSource> make(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                                              std::chrono::milliseconds freshness,
                                              std::uint64_t write_bytes, bool visible);
    CachedSource(const CachedSource&) = delete;
    CachedSource& operator=(const CachedSource&) = delete;

    // The value, if all that is wanted of it is in the cache; else nullptr.
    Value find(const std::string& key, const protocol::Selection& wanted = {});
    // The value, or nullptr where the key has none; of a large one, the blocks that are wanted. One
    // request for an object or a block, however many ask meanwhile: it takes the turn of the first.
    void fetch(const std::string& key, const protocol::Selection& wanted, Later<Value> then,
               const base::Whose& whose = {});
    // The value that find() or fetch() has brought, where other processes see it: with `may_copy`
    // it is put there, if it is not, and lies in the cache, whole. nullptr where they do not see
    // it.
    Value show(const std::string& key, const Value& value, bool may_copy);
    // Memory for a value that is to be written. It is not on the shelf: a source may keep it for
    // its own, and use it in a forked child, which has no arenas. Throws Error(memory) where there
    // is not enough.
    std::shared_ptr<memory::Region> receive(std::uint64_t size);
    // Writes the value to the source, and then keeps it in the cache. False where `if_absent`, and
    // the key had a value. `moves` as for Calls::push().
    void write(const std::string& key, std::shared_ptr<memory::Region> value, bool if_absent,
               Later<bool> then, Calls::Moves moves = {}, const base::Whose& whose = {});
    // Makes any other call to the source; `moves` as for Calls::push().
    void call(StorageCall call, Later<CallResult> then, Calls::Moves moves = {},
              const base::Whose& whose = {});

    // For a server that is one of several: how they agree is in docs/consistency.md.
    // Until when it may send without asking the source what it has, on boot_nanoseconds().
    void set_lease_end(std::uint64_t until);
    // Forgets all, and what is on its way now: it may be older than the lease that begins.
    void forget_all();
    // Forgets the key of this name and all below it; all, for "". Nothing that is still to be
    // written is in the cache. Returns the bytes that are free now, and those of forgotten values
    // that other processes still read.
    struct Flushed {
        std::uint64_t freed = 0;
        std::uint64_t read = 0;
    };
    Flushed flush(const std::string& name);
    // Whether it may send what it has of the key without asking the source.
    bool believes(const std::string& key);
    // The version of a key's value, where it may be sent what was made of that without asking the
    // source, whether the value itself is still in the cache or not. nullopt where that must be
    // asked, or the cache does not note versions.
    std::optional<std::uint64_t> believed_version(const std::string& key);
    // Notes the versions of what comes from now on.
    void note_versions();
    // These keys and prefixes change, or may: each get asks the source, until the end. Whoever
    // carries changes out says so, of this server's, too.
    void begin_asking(const Names& names);
    void end_asking(const Names& names);

    Calls& calls() { return state_.calls; }
    // The bytes of values that are written, from when they are received until they are stored.
    storage::WriteBudget& writes() { return writes_; }
    const SourceCounters& counters() const { return state_.counters; }
    // Values that were found in the cache, also by other processes, without asking.
    std::uint64_t hits() const;
    const std::shared_ptr<shared::Shelf>& shelf() const { return shelf_; }
    std::uint64_t cached_bytes();
    std::uint64_t evicted();
    std::uint64_t evicted_bytes();
    // Fails every call, and empties the cache.
    void close(const std::string& why);

  private:
    std::shared_ptr<memory::Region> copy_to_shelf(const std::string& key,
                                                  const memory::Region& value);
    bool is_stale(const std::string& key);
    // Whether the value may be kept: its key was not changed meanwhile.
    bool stored(const std::string& key, std::shared_ptr<memory::Region> value, CallResult result,
                const Later<bool>& then);

    const std::uint64_t block_;
    const std::shared_ptr<shared::Shelf> shelf_;
    storage::WriteBudget writes_;
    SourceState state_;
    WholeFetches wholes_{state_};
    BlockFetches blocks_{state_, wholes_, block_};
};

}  // namespace ucxstore::cache

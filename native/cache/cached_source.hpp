// A storage behind calls that take their time, with a cache in front: an object store, mostly.
// Nothing here waits. Called from every progress thread of the server at once, and by whoever
// carries the calls out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/blocks.hpp"
#include "cache/cache.hpp"
#include "cache/calls.hpp"
#include "cache/write_budget.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// What came of something that took its time: a failure, or a value.
template <typename T>
struct Outcome {
    T value{};
    std::string failure;  // "" for none
};
template <typename T>
using Later = std::function<void(Outcome<T>)>;  // on any thread, and not under a lock

class CachedSource {
  public:
    using Value = std::shared_ptr<const Region>;

    static constexpr auto kForEver = std::chrono::milliseconds::max();
    static constexpr std::uint64_t kWriteBytes = 256ull << 20;

    struct Counters {
        std::atomic<std::uint64_t> hits = 0;
        std::atomic<std::uint64_t> misses = 0;
        std::atomic<std::uint64_t> joined = 0;  // misses that waited for another one's request
    };

    // Objects of more than two blocks are fetched and kept in blocks, unless most of one is wanted;
    // none are where a block has no bytes.
    // What is in the cache is believed for as long as `freshness`, and then asked about.
    // Values on their way to the storage take `write_bytes` at the most, or are one alone.
    CachedSource(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                 std::chrono::milliseconds freshness = kForEver,
                 std::uint64_t write_bytes = kWriteBytes, Cache::Now now = Cache::Clock::now)
        : block_(block_bytes),
          freshness_(freshness),
          writes_(write_bytes),
          cache_(cache_bytes, std::move(now)) {}

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
    void ask(Ask ask, Later<Told> then);

    Calls& calls() { return calls_; }
    // Of values that are written, from when they are received until they are stored.
    WriteBudget& writes() { return writes_; }
    const Counters& counters() const { return counters_; }
    std::uint64_t cached_bytes();
    std::uint64_t evicted();
    // Every call has failed, and nothing is held.
    void close(const std::string& why);

  private:
    // A request for a value, and all who wait for it.
    struct Flight {
        std::vector<Later<Value>> waiting;
        bool stale = false;  // the key was changed meanwhile: what comes may be older than that
    };
    // Changes of a key that are under way.
    struct Changes {
        std::uint64_t count = 0;
        bool several = false;  // at once, so that nobody knows which of them is the last
    };

    // What is known of large objects, and who waits for that, or for blocks of one: see
    // remote_blocks.cpp.
    struct Gather;
    struct HeadFlight {
        std::vector<std::shared_ptr<Gather>> waiting;
        bool stale = false;
        bool brings = false;  // the first blocks
    };
    struct RunFlight {
        Run run;
        std::uint64_t version = 0;
        std::vector<std::shared_ptr<Gather>> waiting;
        bool stale = false;
    };

    void fetch_whole(const std::string& key, Later<Value> then);
    void look(const std::shared_ptr<Gather>& gather);
    bool being_brought(const std::string& key);
    // These tell whether what has come may be kept: its key was not changed meanwhile.
    bool looked(const std::string& key, const std::shared_ptr<HeadFlight>& flight, Told told);
    void plan(const std::shared_ptr<Gather>& gather);
    bool take_cached(Gather& gather, std::vector<std::uint64_t>& missing);
    std::vector<std::shared_ptr<RunFlight>> depart(const std::shared_ptr<Gather>& gather,
                                                   const std::vector<std::uint64_t>& missing);
    bool run_landed(const std::string& key, const std::shared_ptr<RunFlight>& flight,
                    const About& about, Told told);
    void finish(const std::shared_ptr<Gather>& gather);
    Value whole_or_parts(const std::string& key, const wire::Selection& wanted);
    std::shared_ptr<const About> about(const std::string& key);
    void forget(const std::string& key);
    bool fresh(const std::string& key) const;
    bool stale(const std::string& key);
    void judge(const std::string& key, const About& about);

    bool landed(const std::string& key, const std::shared_ptr<Flight>& flight, Told told);
    void keep_whole(const std::string& key, const Value& value);
    bool changing(const std::string& key) const;
    void begin_change(const std::string& key);
    bool end_change(const std::string& key);
    void begin_prefix(const std::string& prefix);
    void end_prefix(const std::string& prefix);
    void ground(const std::string& key);
    bool stored(const std::string& key, std::shared_ptr<Region> value, Told told,
                const Later<bool>& then);
    void removed(const Ask& ask);

    const std::uint64_t block_;
    const std::chrono::milliseconds freshness_;
    WriteBudget writes_;
    Calls calls_;
    Counters counters_;
    std::mutex mutex_;
    Cache cache_;
    std::map<std::string, std::shared_ptr<Flight>, std::less<>> flights_;
    std::map<std::string, std::shared_ptr<HeadFlight>, std::less<>> heads_;
    std::map<std::string, std::shared_ptr<RunFlight>, std::less<>> runs_;  // by the run's name
    std::map<std::string, Changes, std::less<>> changes_;
    std::vector<std::string> prefixes_;  // that are being removed
};

}  // namespace ucxstore

// A backing behind calls that take their time, with a cache in front: an object store, mostly.
// Nothing here waits. Called from every progress thread of the server at once, and by whoever
// carries the calls out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache.hpp"
#include "calls.hpp"

namespace ucxstore {

// What came of something that took its time: a failure, or a value.
template <typename T>
struct Outcome {
    T value{};
    std::string failure;  // "" for none
};
template <typename T>
using Later = std::function<void(Outcome<T>)>;  // on any thread, and not under a lock

class RemoteBacking {
  public:
    using Value = std::shared_ptr<const Region>;

    struct Counters {
        std::atomic<std::uint64_t> hits = 0;
        std::atomic<std::uint64_t> misses = 0;
        std::atomic<std::uint64_t> joined = 0;  // misses that waited for another one's request
    };

    explicit RemoteBacking(std::uint64_t cache_bytes) : cache_(cache_bytes) {}

    // The value if it is in the cache; then nothing else has to be done.
    Value find(const std::string& key);
    // The value, or nullptr where the key has none. One request, however many ask meanwhile.
    void fetch(const std::string& key, Later<Value> then);
    // Puts the value under its key; false where it was to be a new key and was not. Once it is
    // there, the cache holds it.
    void write(const std::string& key, std::shared_ptr<Region> value, bool if_absent,
               Later<bool> then);
    void ask(Ask ask, Later<Told> then);

    Calls& calls() { return calls_; }
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

    void landed(const std::string& key, const std::shared_ptr<Flight>& flight, Told told);
    bool changing(const std::string& key) const;
    void begin_change(const std::string& key);
    bool end_change(const std::string& key);
    void begin_prefix(const std::string& prefix);
    void end_prefix(const std::string& prefix);
    void ground(const std::string& key);
    void stored(const std::string& key, std::shared_ptr<Region> value, Told told,
                const Later<bool>& then);
    void removed(const Ask& ask);

    Calls calls_;
    Counters counters_;
    std::mutex mutex_;
    Cache cache_;
    std::map<std::string, std::shared_ptr<Flight>, std::less<>> flights_;
    std::map<std::string, Changes, std::less<>> changes_;
    std::vector<std::string> prefixes_;  // that are being removed
};

// Where the values of a server are: one of the two.
struct Holdings {
    Holdings(std::shared_ptr<Backing> backing) : local(std::move(backing)) {}
    Holdings(std::shared_ptr<RemoteBacking> backing) : remote(std::move(backing)) {}

    std::shared_ptr<Backing> local;
    std::shared_ptr<RemoteBacking> remote;
};

}  // namespace ucxstore

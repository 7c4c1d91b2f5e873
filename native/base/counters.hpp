// Counters of a server: of all its threads together, and of each client. Any thread reads them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace ucxstore::base {

using Count = std::atomic<std::uint64_t>;

// What the server holds for a session or an origin, and has worked for it.
struct AccountCounts {
    std::string origin;
    std::uint64_t sessions = 1;
    double worked_s = 0;
    std::vector<std::pair<const char*, std::uint64_t>> held;  // by kind, but for what is 0
};

// Who can tell that of a client. Any thread.
class Accounted {
  public:
    Accounted() = default;
    Accounted(const Accounted&) = delete;
    Accounted& operator=(const Accounted&) = delete;
    virtual ~Accounted() = default;
    virtual AccountCounts counts() const = 0;
};

// What clients of the host say that they have read by themselves: values, and their bytes.
struct SeenCounts {
    std::uint64_t gets = 0;
    std::uint64_t bytes = 0;

    SeenCounts& operator+=(const SeenCounts& more) {
        gets += more.gets;
        bytes += more.bytes;
        return *this;
    }
};

// Where a client says so. Any thread.
class Seeing {
  public:
    Seeing() = default;
    Seeing(const Seeing&) = delete;
    Seeing& operator=(const Seeing&) = delete;
    virtual ~Seeing() = default;
    virtual SeenCounts seen() const = 0;
};

// What one client has read in all the places that it was shown. Any thread.
class SeenByClient {
  public:
    void add(std::shared_ptr<const Seeing> place);
    // The client is not shown it any more; what it has read there until now stays counted.
    void drop(const Seeing* place);
    SeenCounts counts() const;

  private:
    mutable Mutex mutex_;
    std::vector<std::shared_ptr<const Seeing>> places_ GUARDED_BY(mutex_);
    SeenCounts before_ GUARDED_BY(mutex_);
};

// Counters of one connected client.
struct ClientCounters {
    ClientCounters(std::uint64_t its_id, std::string the_peer,
                   std::shared_ptr<const Accounted> its = nullptr)
        : id(its_id), peer(std::move(the_peer)), account(std::move(its)) {}

    const std::uint64_t id;  // the number of its session, from 1 on
    const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
    const std::string peer;
    const std::shared_ptr<const Accounted> account;  // nullptr for none
    Count gets = 0;
    Count sets = 0;
    Count bytes_sent = 0;
    Count bytes_received = 0;
    Count bytes_in_flight = 0;  // to the client
    Count gets_waiting = 0;
    SeenByClient seen;
    // Since when it has moved nothing, as of when its session was looked at last.
    std::atomic<std::chrono::steady_clock::time_point> silent_since = begun;

  private:
    friend class Counters;
    std::vector<std::string> lanes_;  // these two under Counters::mutex_
    bool encrypted_ = false;
};

// Counters of a scratch space, for anybody to see: so `name` is only the beginning of its name.
struct SpaceCounts {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t quota = 0;
    double age_s = 0;
};

// Counters that are added up, each with the name that `ServerStats` has for it.
template <typename Counts>
using Names = std::initializer_list<std::pair<const char*, std::uint64_t Counts::*>>;

// Counters of the memory that clients of the host see; all 0 where there is none.
struct ShelfCounts {
    std::uint64_t gets_seen = 0;   // values that clients have read there, as they say
    std::uint64_t bytes_seen = 0;  // of these
    std::uint64_t arenas = 0;
    std::uint64_t arena_bytes = 0;          // of all arenas, used or not
    std::uint64_t arena_bytes_used = 0;     // of blocks
    std::uint64_t arena_bytes_slack = 0;    // of slabs, that no block has
    std::uint64_t arena_bytes_waiting = 0;  // of blocks without a key that clients still read
    std::uint64_t arena_bytes_held = 0;     // of blocks that clients read, with a key or without
    std::uint64_t adopted = 0;        // those of `arenas` that clients have made for one value each
    std::uint64_t adopted_bytes = 0;  // of these

    static Names<ShelfCounts> names() {
        using Self = ShelfCounts;
        static constexpr Names<Self> kNames = {{"gets_seen", &Self::gets_seen},
                                               {"bytes_seen", &Self::bytes_seen},
                                               {"arenas", &Self::arenas},
                                               {"arena_bytes", &Self::arena_bytes},
                                               {"arena_bytes_used", &Self::arena_bytes_used},
                                               {"arena_bytes_slack", &Self::arena_bytes_slack},
                                               {"arena_bytes_waiting", &Self::arena_bytes_waiting},
                                               {"arena_bytes_held", &Self::arena_bytes_held},
                                               {"adopted", &Self::adopted},
                                               {"adopted_bytes", &Self::adopted_bytes}};
        return kNames;
    }

    ShelfCounts& operator+=(const ShelfCounts& other) {
        for (const auto& [name, count] : names()) {
            this->*count += other.*count;
        }
        return *this;
    }
};

// Values of a server of memory, and what they take of it; all 0 for other servers.
struct MemoryCounts {
    std::uint64_t values = 0;
    std::uint64_t bytes = 0;  // of these
    std::uint64_t used = 0;   // with all that values need besides, and in scratch spaces, too
    std::uint64_t limit = 0;  // of `used`; 0 for none
    // Where a full memory evicts: values that have gone so far, and keys that are still remembered.
    std::uint64_t evicted = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t evicted_keys = 0;
    // Where it spills: those of the values, and of their bytes, that are in files.
    std::uint64_t spilled = 0;
    std::uint64_t spilled_bytes = 0;

    static Names<MemoryCounts> names() {
        using Self = MemoryCounts;
        static constexpr Names<Self> kNames = {{"value_count", &Self::values},
                                               {"value_bytes", &Self::bytes},
                                               {"memory_used", &Self::used},
                                               {"memory_limit", &Self::limit},
                                               {"evicted", &Self::evicted},
                                               {"evicted_bytes", &Self::evicted_bytes},
                                               {"evicted_keys", &Self::evicted_keys},
                                               {"spilled", &Self::spilled},
                                               {"spilled_bytes", &Self::spilled_bytes}};
        return kNames;
    }
};

// What the cache in front of a source has done; all 0 where there is none.
struct CacheCounts {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t joined = 0;  // misses that waited for a request already under way
    std::uint64_t bytes = 0;   // that it holds now
    std::uint64_t writing_bytes = 0;
    std::uint64_t evicted = 0;
    std::uint64_t evicted_bytes = 0;

    static Names<CacheCounts> names() {
        using Self = CacheCounts;
        static constexpr Names<Self> kNames = {{"cache_hits", &Self::hits},
                                               {"cache_misses", &Self::misses},
                                               {"requests_saved", &Self::joined},
                                               {"cached_bytes", &Self::bytes},
                                               {"writing_bytes", &Self::writing_bytes}};
        return kNames;
    }
};

// What a server has decoded for its readers; all 0 where it does not.
struct DecodedCounts {
    std::uint64_t decoded = 0;  // values that were decoded, each time
    std::uint64_t hits = 0;     // gets that found one
    std::uint64_t joined = 0;   // gets that waited for one that was being decoded
    std::uint64_t failed = 0;   // values that were not decoded here, or could not be
    std::uint64_t bytes = 0;    // that they take now
    std::uint64_t limit = 0;
    std::uint64_t evicted = 0;

    static Names<DecodedCounts> names() {
        using Self = DecodedCounts;
        static constexpr Names<Self> kNames = {
            {"decoded", &Self::decoded},        {"decoded_hits", &Self::hits},
            {"decodes_saved", &Self::joined},   {"decodes_failed", &Self::failed},
            {"decoded_bytes", &Self::bytes},    {"decoded_limit", &Self::limit},
            {"decoded_evicted", &Self::evicted}};
        return kNames;
    }
};

// Kinds of requests whose latencies are counted: from when a request has come until the last of its
// reply has gone.
enum class RequestKind : std::uint8_t { get, set, stat, list, remove, other };

// How many requests took how long. Any thread adds to it, without waiting for another one.
class Latencies {
  public:
    static constexpr std::array<const char*, 6> kKinds{"get",  "set",    "stat",
                                                       "list", "remove", "other"};
    // Each bucket but the last ends at twice the time of the one before it.
    static constexpr std::size_t kBuckets = 23;
    static constexpr std::chrono::nanoseconds kFirst{10'000};

    void add(RequestKind kind, std::chrono::nanoseconds took);

    struct Histogram {
        std::array<std::uint64_t, kBuckets> counts{};
        double seconds = 0;  // of all together
    };
    Histogram histogram(std::size_t kind) const;
    // Which bucket is for it.
    static std::size_t bucket(std::chrono::nanoseconds took);

  private:
    // Threads have their own, as far as there are enough.
    static constexpr std::size_t kStripes = 8;
    struct alignas(64) Stripe {
        std::array<std::array<Count, kBuckets>, kKinds.size()> counts{};
        std::array<Count, kKinds.size()> nanoseconds{};
    };
    std::array<Stripe, kStripes> stripes_;
};

// Why requests fail.
enum class Failing : std::uint8_t {
    denied,
    read_only,
    invalid_key,
    full,  // no room, or no memory
    storage,
    source,
    ended,  // scratch spaces
    evicted,
    busy,
    altered,
    unknown,
};
inline constexpr std::array<const char*, 11> kFailings{
    "denied", "read_only", "invalid_key", "full",    "storage", "source",
    "ended",  "evicted",   "busy",        "altered", "unknown"};

class Counters {
  private:
    // A counter that is told by its name.
    struct Named : Count {
        Named(Counters& all, const char* name) {
            all.told_.emplace_back(name, [this] { return load(); });
        }
    };
    // Before those that enter themselves here.
    std::vector<std::pair<std::string, std::function<std::uint64_t()>>> told_;

  public:
    Named gets{*this, "gets"};
    Named gets_missing{*this, "gets_missing"};
    Named sets{*this, "sets"};
    Named bytes_sent{*this, "bytes_sent"};
    Named bytes_received{*this, "bytes_received"};
    Named sessions{*this, "sessions"};
    Named sessions_lost{*this, "sessions_lost"};
    Named sessions_ended{*this, "sessions_ended"};  // in favour of others, or by operators
    Named messages_refused{*this, "messages_refused"};
    Named abandoned{*this, "abandoned"};  // requests that clients have given up
    std::array<Count, kFailings.size()> failed{};
    Latencies latencies;

    void count_failed(Failing why) { ++failed[static_cast<std::size_t>(why)]; }
    std::uint64_t all_failed() const;
    // Tells what somebody else counts, by this name. Before the first session. `read` is called on
    // any thread.
    void tell(std::string name, std::function<std::uint64_t()> read) {
        told_.emplace_back(std::move(name), std::move(read));
    }

    void count_get(ClientCounters& client) { ++gets, ++client.gets; }
    void count_set(ClientCounters& client, std::uint64_t bytes) {
        ++sets, ++client.sets;
        bytes_received += bytes, client.bytes_received += bytes;
    }
    void count_sent(ClientCounters& client, std::uint64_t bytes) {
        bytes_sent += bytes, client.bytes_sent += bytes;
    }

    // Counts a client until the last copy of the pointer goes.
    std::shared_ptr<ClientCounters> add(const std::string& peer,
                                        std::shared_ptr<const Accounted> account = nullptr);
    void set_lanes(ClientCounters& client, std::vector<std::string> lanes, bool encrypted = false);

    // The counters as JSON: see docs/wire.md. Of clients, spaces and origins beyond these limits,
    // only the number is told. `asker` is the number of the session that asks, or 0.
    static constexpr std::size_t kMaxClients = 512;
    static constexpr std::size_t kMaxSpaces = 512;
    static constexpr std::size_t kMaxOrigins = 512;
    std::string to_json(const std::vector<SpaceCounts>& spaces = {}, const ShelfCounts& shelf = {},
                        const MemoryCounts& memory = {}, const CacheCounts& cache = {},
                        const DecodedCounts& decoded = {},
                        const std::vector<AccountCounts>& origins = {},
                        std::uint64_t asker = 0) const;

    // Clients of sessions with larger numbers than `after`, in order, as JSON: see docs/wire.md. A
    // page has about so many bytes.
    static constexpr std::size_t kListedBytes = 128 << 10;
    std::string sessions_json(std::uint64_t after) const;

  private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    mutable Mutex mutex_;
    std::vector<std::weak_ptr<ClientCounters>> clients_ GUARDED_BY(mutex_);  // by their numbers
    std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ucxstore::base

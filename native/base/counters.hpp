// Counters of a server: of all its threads together, and of each client. Any thread reads them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ucxstore {

using Count = std::atomic<std::uint64_t>;

// Counters of one connected client.
struct ClientCounters {
    explicit ClientCounters(std::string the_peer) : peer(std::move(the_peer)) {}

    const std::string peer;
    Count gets = 0;
    Count sets = 0;
    Count bytes_sent = 0;
    Count bytes_received = 0;
    Count bytes_in_flight = 0;  // to the client
    Count gets_waiting = 0;

  private:
    friend class Counters;
    std::vector<std::string> lanes_;  // guarded by Counters::mutex_
};

// Counters of a scratch space, for anybody to see: so `name` is only the beginning of its name.
struct SpaceCounts {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t quota = 0;
    double age_s = 0;
};

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

    ShelfCounts& operator+=(const ShelfCounts& other);
};

class Counters {
  public:
    Count gets = 0;
    Count gets_missing = 0;  // gets of missing keys
    Count sets = 0;
    Count bytes_sent = 0;
    Count bytes_received = 0;
    Count sessions = 0;
    Count sessions_lost = 0;
    Count sessions_ended = 0;  // in favour of others
    Count messages_refused = 0;

    void count_get(ClientCounters& client) { ++gets, ++client.gets; }
    void count_set(ClientCounters& client, std::uint64_t bytes) {
        ++sets, ++client.sets;
        bytes_received += bytes, client.bytes_received += bytes;
    }
    void count_sent(ClientCounters& client, std::uint64_t bytes) {
        bytes_sent += bytes, client.bytes_sent += bytes;
    }

    // Counts a client until the last copy of the pointer goes.
    std::shared_ptr<ClientCounters> add(const std::string& peer);
    void set_lanes(ClientCounters& client, std::vector<std::string> lanes);

    // The counters as JSON: see docs/wire.md. Of clients and spaces beyond these limits, only the
    // number is told.
    static constexpr std::size_t kMaxClients = 512;
    static constexpr std::size_t kMaxSpaces = 512;
    std::string to_json(const std::vector<SpaceCounts>& spaces = {},
                        const ShelfCounts& shelf = {}) const;

  private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    mutable std::mutex mutex_;  // guards clients_ and their lanes
    std::vector<std::weak_ptr<ClientCounters>> clients_;
};

}  // namespace ucxstore

// What a server counts, over all of its threads and of each client; read by any thread.
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

// Of one client, while it is connected.
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
    std::vector<std::string> lanes_;  // under the server's mutex
};

// A scratch space, as far as it is told to whoever asks: not by its whole name.
struct SpaceCounts {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t quota = 0;
    double age_s = 0;
};

class Counters {
  public:
    Count gets = 0;
    Count gets_missing = 0;  // those of them whose key there was not
    Count sets = 0;
    Count bytes_sent = 0;
    Count bytes_received = 0;
    Count sessions = 0;
    Count sessions_lost = 0;
    Count messages_refused = 0;

    void count_get(ClientCounters& client) { ++gets, ++client.gets; }
    void count_set(ClientCounters& client, std::uint64_t bytes) {
        ++sets, ++client.sets;
        bytes_received += bytes, client.bytes_received += bytes;
    }
    void count_sent(ClientCounters& client, std::uint64_t bytes) {
        bytes_sent += bytes, client.bytes_sent += bytes;
    }

    // A client is counted for as long as somebody holds this.
    std::shared_ptr<ClientCounters> add(const std::string& peer);
    void set_lanes(ClientCounters& client, std::vector<std::string> lanes);

    // As JSON: docs/wire.md. Clients beyond kMaxClients are left out, and counted; so are spaces.
    static constexpr std::size_t kMaxClients = 512;
    static constexpr std::size_t kMaxSpaces = 512;
    std::string to_json(const std::vector<SpaceCounts>& spaces = {}) const;

  private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    mutable std::mutex mutex_;  // held for as long as copying takes
    std::vector<std::weak_ptr<ClientCounters>> clients_;
};

}  // namespace ucxstore

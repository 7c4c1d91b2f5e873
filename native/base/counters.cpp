#include "base/counters.hpp"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

namespace ucxstore::base {
namespace {

// A peer's name and its lanes are short; longer ones are cut, so that a reply stays bounded.
constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxLanes = 16;

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char one : text.substr(0, kMaxName)) {
        // Our own names are plain ASCII; whatever else comes is shown as '?'.
        const bool plain = one >= ' ' && one <= '~' && one != '"' && one != '\\';
        out += plain ? one : '?';
    }
    return out + '"';
}

class JsonObject {
  public:
    JsonObject& add(const char* name, std::string value) {
        text_ += text_.empty() ? "{" : ", ";
        text_ += quoted(name) + ": " + std::move(value);
        return *this;
    }
    JsonObject& add(const char* name, std::uint64_t value) {
        return add(name, std::to_string(value));
    }
    std::string take() { return text_.empty() ? "{}" : std::move(text_) + "}"; }

  private:
    std::string text_;
};

template <typename Counts>
void add_each(JsonObject& object, const Counts& counts) {
    for (const auto& [name, count] : Counts::names()) {
        object.add(name, counts.*count);
    }
}

std::string array(const std::vector<std::string>& values) {
    std::string out = "[";
    for (const std::string& value : values) {
        out += (out.size() > 1 ? ", " : "") + value;
    }
    return out + "]";
}

std::string held_json(const AccountCounts& counts) {
    JsonObject held;
    for (const auto& [name, amount] : counts.held) {
        held.add(name, amount);
    }
    return held.take();
}

std::string origin_json(const AccountCounts& counts) {
    return JsonObject()
        .add("origin", quoted(counts.origin))
        .add("sessions", counts.sessions)
        .add("worked_s", std::to_string(counts.worked_s))
        .add("held", held_json(counts))
        .take();
}

double seconds_since(std::chrono::steady_clock::time_point moment) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - moment).count();
}

std::string client_json(const ClientCounters& client, const std::vector<std::string>& lanes,
                        bool encrypted) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(lanes.size(), kMaxLanes); ++i) {
        names.push_back(quoted(lanes[i]));
    }
    const SeenCounts seen = client.seen.counts();
    const AccountCounts account =
        client.account == nullptr ? AccountCounts() : client.account->counts();
    return JsonObject()
        .add("id", client.id)
        .add("peer", quoted(client.peer))
        .add("origin", quoted(account.origin))
        .add("lanes", array(names))
        .add("encrypted", encrypted ? "true" : "false")
        .add("gets", client.gets)
        .add("sets", client.sets)
        .add("bytes_sent", client.bytes_sent)
        .add("bytes_received", client.bytes_received)
        .add("bytes_in_flight", client.bytes_in_flight)
        .add("gets_waiting", client.gets_waiting)
        .add("gets_seen", seen.gets)
        .add("bytes_seen", seen.bytes)
        .add("age_s", std::to_string(seconds_since(client.begun)))
        .add("silent_s", std::to_string(seconds_since(client.silent_since)))
        .add("worked_s", std::to_string(account.worked_s))
        .add("held", held_json(account))
        .take();
}

std::string space_json(const SpaceCounts& space) {
    return JsonObject()
        .add("name", quoted(space.name))
        .add("bytes", space.bytes)
        .add("quota", space.quota)
        .add("age_s", std::to_string(space.age_s))
        .take();
}

}  // namespace

void SeenByClient::add(std::shared_ptr<const Seeing> place) {
    const Lock lock(mutex_);
    places_.push_back(std::move(place));
}

void SeenByClient::drop(const Seeing* place) {
    const Lock lock(mutex_);
    std::erase_if(places_, [&](const auto& one) REQUIRES(mutex_) {
        if (one.get() != place) {
            return false;
        }
        before_ += one->seen();
        return true;
    });
}

SeenCounts SeenByClient::counts() const {
    const Lock lock(mutex_);
    SeenCounts sum = before_;
    for (const auto& place : places_) {
        sum += place->seen();
    }
    return sum;
}

std::size_t Latencies::bucket(std::chrono::nanoseconds took) {
    const auto steps = static_cast<std::uint64_t>(
        std::max<std::int64_t>((took.count() + kFirst.count() - 1) / kFirst.count(), 1));
    return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(steps - 1)), kBuckets - 1);
}

void Latencies::add(RequestKind kind, std::chrono::nanoseconds took) {
    constinit static std::atomic<std::size_t> threads = 0;
    static thread_local const std::size_t own = threads++ % kStripes;
    const auto place = static_cast<std::size_t>(kind);
    Stripe& stripe = stripes_[own];
    stripe.counts[place][bucket(took)].fetch_add(1, std::memory_order_relaxed);
    stripe.nanoseconds[place].fetch_add(
        static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)),
        std::memory_order_relaxed);
}

Latencies::Histogram Latencies::histogram(std::size_t kind) const {
    Histogram sum;
    for (const Stripe& stripe : stripes_) {
        for (std::size_t i = 0; i < kBuckets; ++i) {
            sum.counts[i] += stripe.counts[kind][i].load(std::memory_order_relaxed);
        }
        sum.seconds +=
            static_cast<double>(stripe.nanoseconds[kind].load(std::memory_order_relaxed)) * 1e-9;
    }
    return sum;
}

std::uint64_t Counters::all_failed() const {
    std::uint64_t sum = 0;
    for (const Count& one : failed) {
        sum += one;
    }
    return sum;
}

std::shared_ptr<ClientCounters> Counters::add(const std::string& peer,
                                              std::shared_ptr<const Accounted> account) {
    const Lock lock(mutex_);
    auto client = std::make_shared<ClientCounters>(++last_id_, peer, std::move(account));
    std::erase_if(clients_, [](const auto& one) { return one.expired(); });
    clients_.push_back(client);
    return client;
}

void Counters::set_lanes(ClientCounters& client, std::vector<std::string> lanes, bool encrypted) {
    const Lock lock(mutex_);
    client.lanes_ = std::move(lanes);
    client.encrypted_ = encrypted;
}

std::string Counters::to_json(const std::vector<SpaceCounts>& spaces, const ShelfCounts& shelf,
                              const MemoryCounts& memory, const CacheCounts& cache,
                              const DecodedCounts& decoded,
                              const std::vector<AccountCounts>& origins,
                              std::uint64_t asker) const {
    std::vector<std::string> clients;
    std::uint64_t connected = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t waiting = 0;
    {
        const Lock lock(mutex_);
        for (const auto& one : clients_) {
            const auto client = one.lock();
            if (client == nullptr) {
                continue;
            }
            in_flight += client->bytes_in_flight;
            waiting += client->gets_waiting;
            if (++connected <= kMaxClients) {
                clients.push_back(client_json(*client, client->lanes_, client->encrypted_));
            }
        }
    }
    std::vector<std::string> shown;
    std::uint64_t scratch_bytes = 0;
    for (const SpaceCounts& space : spaces) {
        scratch_bytes += space.bytes;
        if (shown.size() < kMaxSpaces) {
            shown.push_back(space_json(space));
        }
    }
    std::vector<std::string> accounts;
    for (std::size_t i = 0; i < std::min(origins.size(), kMaxOrigins); ++i) {
        accounts.push_back(origin_json(origins[i]));
    }
    MemoryCounts of_values = memory;
    of_values.evicted += cache.evicted;
    of_values.evicted_bytes += cache.evicted_bytes;

    JsonObject all;
    all.add("asked_by", asker)
        .add("uptime_s", std::to_string(seconds_since(start_)))
        .add("connected", connected)
        .add("clients", array(clients))
        .add("scratch_spaces", spaces.size())
        .add("spaces", array(shown))
        .add("origins", array(accounts))
        .add("bytes_in_flight", in_flight)
        .add("gets_waiting", waiting)
        .add("scratch_bytes", scratch_bytes)
        .add("failed", all_failed());
    for (const auto& [name, read] : told_) {
        all.add(name.c_str(), read());
    }
    add_each(all, shelf);
    add_each(all, of_values);
    add_each(all, cache);
    add_each(all, decoded);
    return all.take();
}

std::string Counters::sessions_json(std::uint64_t after) const {
    std::vector<std::string> listed;
    std::size_t bytes = 0;
    bool more = false;
    const Lock lock(mutex_);
    for (const auto& one : clients_) {
        const auto client = one.lock();
        if (client == nullptr || client->id <= after) {
            continue;
        }
        more = bytes >= kListedBytes;
        if (more) {
            break;
        }
        listed.push_back(client_json(*client, client->lanes_, client->encrypted_));
        bytes += listed.back().size();
    }
    return JsonObject().add("sessions", array(listed)).add("more", more ? "true" : "false").take();
}

}  // namespace ucxstore::base

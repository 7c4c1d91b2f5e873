#include "sessions/storages.hpp"

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "shared/shelf.hpp"

namespace ucxstore::sessions {

std::shared_ptr<storage::Storage> Storages::storage_of(const std::string& key) const {
    if (protocol::is_decoded(key)) {
        throw base::Error(base::ErrorKind::invalid_key,
                          "is the name of a decoded value, which only a get may be for, with a "
                          "recipe");
    }
    const auto space = protocol::space_of(key);
    return space ? offered_spaces().find(*space) : local;
}

storage::Spaces& Storages::offered_spaces() const {
    if (spaces == nullptr) {
        throw base::Error(base::ErrorKind::storage,
                          "the server offers no scratch space: start it with Server(..., "
                          "scratch_limit=\"8GiB\"), or ucxstore serve --scratch-limit 8GiB");
    }
    return *spaces;
}

base::ShelfCounts Storages::shown_counts() const {
    base::ShelfCounts counts = shelf == nullptr ? base::ShelfCounts() : shelf->counts();
    if (decoded != nullptr && decoded->shelf() != nullptr) {
        counts += decoded->shelf()->counts();
    }
    const base::SeenCounts read = readers->counts();
    counts.gets_seen += read.gets;
    counts.bytes_seen += read.bytes;
    return counts;
}

base::CacheCounts Storages::cache_counts() const {
    return source == nullptr ? base::CacheCounts()
                             : base::CacheCounts{.hits = source->hits(),
                                                 .misses = source->counters().misses,
                                                 .joined = source->counters().joined,
                                                 .bytes = source->cached_bytes(),
                                                 .writing_bytes = source->writes().taken(),
                                                 .evicted = source->evicted(),
                                                 .evicted_bytes = source->evicted_bytes()};
}

void Storages::forget_gone() const {
    if (shelf != nullptr) {
        shelf->forget_gone();
    }
    if (spaces != nullptr) {
        spaces->forget_gone();
    }
    if (decoded != nullptr && decoded->shelf() != nullptr) {
        decoded->shelf()->forget_gone();
    }
}

}  // namespace ucxstore::sessions

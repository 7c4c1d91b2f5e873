// The cache of a source's objects: whole values, and of large ones info and runs of blocks. Knows
// for how long each is believed. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/blocks.hpp"
#include "cache/cache.hpp"
#include "cache/cache_shelf.hpp"
#include "cache/lease.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::cache {

// Whether a tag is strong: only equal strong tags show that two blocks are of one value.
inline bool is_strong(const std::string& etag) { return !etag.empty() && !etag.starts_with("W/"); }

class ObjectCache {
  public:
    using Value = std::shared_ptr<const memory::Region>;

    static constexpr auto kForEver = std::chrono::milliseconds::max();

    // An object is kept whole, or in runs of blocks of `block_bytes`. It is believed for
    // `freshness`. Then the source must be asked about it. Whole values that lie on `shelf`, if
    // any, are shown there for as long as they are kept and believed.
    ObjectCache(std::uint64_t bytes, std::uint64_t block_bytes, std::chrono::milliseconds freshness,
                Cache::Now now, std::shared_ptr<shared::Shelf> shelf = nullptr);

    // Whether a get may join a request that began before it.
    bool may_join(const std::string& key) const {
        return freshness_.count() > 0 && lease_.covers(key);
    }
    // What may be sent without asking, beside what freshness says.
    Lease& lease() { return lease_; }
    // Until when the lease holds; also for those who see the shelf.
    void set_lease_end(std::uint64_t until);
    // Whether what is kept of the object may be sent without asking the source.
    bool is_fresh(const std::string& key) const;
    // Whether anything of the object is kept.
    bool knows(const std::string& key) const;

    // From now on the versions of values are noted, also of those that are kept no more.
    void note_versions() { notes_versions_ = true; }
    // As CachedSource::believed_version().
    std::optional<std::uint64_t> believed_version(const std::string& key) const;

    // The whole value; nullptr where it is not kept.
    Value whole(const std::string& key);
    // The same where it is fresh; no use of it.
    Value fresh_whole(const std::string& key) const;
    // Keeps what is equal to the whole value, and lies on the shelf, in its place.
    void put_on_shelf(const std::string& key, Value equal);
    // The info of an object that is kept in runs; else nullptr.
    std::shared_ptr<const ObjectInfo> info(const std::string& key);
    // The whole value, or one that has the bytes that are wanted; nullptr where some are missing.
    Value find(const std::string& key, const protocol::Selection& wanted);
    // The runs that have wanted blocks of this version, and the wanted blocks that are missing.
    using Parts = std::vector<PiecedRegion::Part>;
    std::pair<Parts, std::vector<std::uint64_t>> find_parts(const std::string& key,
                                                            const ObjectInfo& info,
                                                            const protocol::Selection& wanted);

    // Keeps a whole value in the place of its runs, so that nothing is kept twice.
    void keep_whole(const std::string& key, const Value& value);
    // Keeps the info, for runs to be added. False where the object is kept already, is not large,
    // or has no strong tag.
    bool keep_info(const std::string& key, const ObjectInfo& info);
    // Keeps a new value, in the place of all that was kept.
    void keep_written(const std::string& key, Value value);
    void keep_run(const std::string& key, std::uint64_t first, Value blocks);
    // Confirms what is kept of the version in `now`, and drops the rest.
    void judge(const std::string& key, const ObjectInfo& now);
    void forget(const std::string& key);
    void forget_prefix(const std::string& prefix) {
        cache_.remove_prefix(prefix);
        versions_.remove_prefix(prefix);
    }
    void clear() {
        cache_.clear();
        versions_.clear();
    }

    std::uint64_t bytes() const { return cache_.bytes(); }
    std::uint64_t evicted() const { return cache_.evicted(); }
    std::uint64_t evicted_bytes() const { return cache_.evicted_bytes(); }

  private:
    // Shows the whole value of a key, if it lies on the shelf, for as long as it is fresh.
    void publish(const std::string& key);
    // Notes that the source has this version now.
    void note_version(const std::string& key, std::uint64_t version);

    const std::uint64_t block_;
    const std::chrono::milliseconds freshness_;
    const std::shared_ptr<shared::Shelf> shelf_;
    Lease lease_;
    Cache cache_;
    // The versions that the source had last, each as long as nothing is known of a change.
    static constexpr std::uint64_t kVersionsBytes = 32ull << 20;
    bool notes_versions_ = false;
    Cache versions_;
};

}  // namespace ucxstore::cache

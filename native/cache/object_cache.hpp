// What is kept of a source's objects: whole values, and runs of blocks of large ones, with what is
// known of these; and for how long it is believed. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/blocks.hpp"
#include "cache/cache.hpp"
#include "protocol/wire.hpp"

namespace ucxstore {

// Parts of an object can be told to be of one value only by a tag that is compared byte by byte.
inline bool is_strong(const std::string& etag) { return !etag.empty() && !etag.starts_with("W/"); }

class ObjectCache {
  public:
    using Value = std::shared_ptr<const Region>;

    static constexpr auto kForEver = std::chrono::milliseconds::max();

    // An object is kept whole, or in runs of blocks of `block_bytes`. What is kept is believed for
    // as long as `freshness`, and must be asked about then.
    ObjectCache(std::uint64_t bytes, std::uint64_t block_bytes, std::chrono::milliseconds freshness,
                Cache::Now now)
        : block_(block_bytes), freshness_(freshness), cache_(bytes, std::move(now)) {}

    // Whether a get may be served by a request from before it, and not only by a later one.
    bool may_join() const { return freshness_.count() > 0; }
    // Whether what there is of it may be sent without asking.
    bool is_fresh(const std::string& key) const;
    // Whether there is anything of it.
    bool knows(const std::string& key) const;

    // The whole value; nullptr where it is not there.
    Value whole(const std::string& key);
    // What is known of an object that is kept in runs.
    std::shared_ptr<const ObjectInfo> info(const std::string& key);
    // The whole value, or one that has the bytes that are wanted; nullptr where some are missing.
    Value find(const std::string& key, const wire::Selection& wanted);
    // The runs with blocks of this version that are wanted; the blocks that are not there.
    using Parts = std::vector<PiecedRegion::Part>;
    std::pair<Parts, std::vector<std::uint64_t>> find_parts(const std::string& key,
                                                            const ObjectInfo& info,
                                                            const wire::Selection& wanted);

    // A whole value takes the place of runs, so that nothing is kept twice.
    void keep_whole(const std::string& key, const Value& value);
    // Just that: runs that come are of it. Nothing where more is kept already, or where runs would
    // not be told from those of another value.
    bool keep_info(const std::string& key, const ObjectInfo& info);
    // A new value, which takes the place of whatever was there.
    void keep_written(const std::string& key, Value value);
    void keep_run(const std::string& key, std::uint64_t first, Value blocks);
    // Keeps what there is of an object if that is what it is now.
    void judge(const std::string& key, const ObjectInfo& now);
    void forget(const std::string& key);
    void forget_prefix(const std::string& prefix) { cache_.remove_prefix(prefix); }
    void clear() { cache_.clear(); }

    std::uint64_t bytes() const { return cache_.bytes(); }
    std::uint64_t evicted() const { return cache_.evicted(); }

  private:
    const std::uint64_t block_;
    const std::chrono::milliseconds freshness_;
    Cache cache_;
};

}  // namespace ucxstore

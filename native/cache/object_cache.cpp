#include "cache/object_cache.hpp"

#include <algorithm>
#include <utility>

#include "cache/run_names.hpp"

namespace ucxstore::cache {
namespace {

// What is fresh for longer is so for ever: it would not fit in nanoseconds.
constexpr std::chrono::hours kAges{24 * 365 * 100};

// The info of an object, as an entry of a cache.
class CachedInfo : public memory::Sized {
  public:
    explicit CachedInfo(ObjectInfo info)
        : info_(std::make_shared<const ObjectInfo>(std::move(info))) {}
    std::uint64_t size() const override { return 0; }
    const std::shared_ptr<const ObjectInfo>& info() const { return info_; }

  private:
    const std::shared_ptr<const ObjectInfo> info_;
};

// The entry of a whole value, or of a run of blocks.
ObjectCache::Value to_region(const Cache::Value& entry) {
    return std::static_pointer_cast<const memory::Region>(entry);
}

}  // namespace

ObjectCache::ObjectCache(std::uint64_t bytes, std::uint64_t block_bytes,
                         std::chrono::milliseconds freshness, Cache::Now now,
                         std::shared_ptr<shared::Shelf> shelf)
    : block_(block_bytes),
      freshness_(freshness),
      shelf_(std::move(shelf)),
      cache_(bytes, now, "the cache", readers_of(shelf_)),
      versions_(kVersionsBytes, std::move(now), "the versions of a source") {}

void ObjectCache::set_lease_end(std::uint64_t until) {
    lease_.set_end(until);
    if (shelf_ != nullptr) {
        shelf_->believe_until(until);
    }
}

bool ObjectCache::is_fresh(const std::string& key) const {
    if (!lease_.covers(key)) {
        return false;
    }
    if (freshness_ == kForEver) {
        return true;
    }
    auto age = cache_.age(key);
    if (!age) {
        age = cache_.age(runs_of(key));
    }
    return age && *age < freshness_;
}

bool ObjectCache::knows(const std::string& key) const {
    return cache_.age(key) || cache_.age(runs_of(key));
}

std::optional<std::uint64_t> ObjectCache::believed_version(const std::string& key) const {
    if (!lease_.covers(key)) {
        return std::nullopt;
    }
    const auto noted = std::dynamic_pointer_cast<const CachedInfo>(versions_.peek(key));
    const auto age = versions_.age(key);
    const bool is_fresh = age && (freshness_ == kForEver || *age < freshness_);
    return is_fresh ? std::optional(noted->info()->version) : std::nullopt;
}

void ObjectCache::note_version(const std::string& key, std::uint64_t version) {
    if (notes_versions_) {
        versions_.put(key, std::make_shared<CachedInfo>(ObjectInfo{0, {}, version}));
    }
}

ObjectCache::Value ObjectCache::whole(const std::string& key) {
    return to_region(cache_.find(key));
}

ObjectCache::Value ObjectCache::fresh_whole(const std::string& key) const {
    return is_fresh(key) ? to_region(cache_.peek(key)) : nullptr;
}

void ObjectCache::put_on_shelf(const std::string& key, Value equal) {
    cache_.exchange(key, std::move(equal));
    publish(key);
}

void ObjectCache::publish(const std::string& key) {
    const Value value = shelf_ == nullptr ? nullptr : to_region(cache_.peek(key));
    if (value == nullptr || !shelf_->holds(*value)) {
        return;
    }
    std::uint64_t until = shared::IndexEntry::kForEver;
    if (freshness_ < kAges) {
        const auto end = *cache_.confirmed(key) + freshness_;
        until =
            static_cast<std::uint64_t>(std::chrono::nanoseconds(end.time_since_epoch()).count());
    }
    shelf_->publish(*value, until);
}

std::shared_ptr<const ObjectInfo> ObjectCache::info(const std::string& key) {
    const auto found = std::dynamic_pointer_cast<const CachedInfo>(cache_.find(runs_of(key)));
    return found == nullptr ? nullptr : found->info();
}

ObjectCache::Value ObjectCache::find(const std::string& key, const protocol::Selection& wanted) {
    if (Value value = whole(key)) {
        return value;
    }
    const auto known = info(key);
    if (known == nullptr) {
        return nullptr;
    }
    auto [parts, missing] = find_parts(key, *known, wanted);
    return missing.empty() ? std::make_shared<PiecedRegion>(*known, std::move(parts)) : nullptr;
}

std::pair<ObjectCache::Parts, std::vector<std::uint64_t>> ObjectCache::find_parts(
    const std::string& key, const ObjectInfo& info, const protocol::Selection& wanted) {
    Parts parts;
    std::vector<std::uint64_t> missing;
    const std::string names = runs_of(key);
    for (const Run& run : blocks_of(wanted, info.size, block_)) {
        for (std::uint64_t block = run.first; block < run.first + run.count;) {
            const auto [name, entry] = cache_.find_last(run_name(key, block));
            const bool is_run = name.size() > names.size() && name.starts_with(names);
            const Value run_value = is_run ? to_region(entry) : nullptr;
            std::uint64_t first = 0;
            std::uint64_t end = 0;
            if (run_value != nullptr && run_value->version() == info.version) {
                first = number_in(name, names);
                end = first + block_count(run_value->size(), block_);
            }
            if (block < end) {
                parts.push_back({first * block_, run_value});
                block = end;
            } else {
                missing.push_back(block++);
            }
        }
    }
    return {std::move(parts), std::move(missing)};
}

void ObjectCache::keep_whole(const std::string& key, const Value& value) {
    note_version(key, value->version());
    cache_.put(key, value);
    if (cache_.find(key) != nullptr) {
        cache_.remove_prefix(runs_of(key));
        publish(key);
    }
}

void ObjectCache::keep_written(const std::string& key, Value value) {
    forget(key);
    note_version(key, value->version());
    cache_.put(key, std::move(value));
    publish(key);
}

bool ObjectCache::keep_info(const std::string& key, const ObjectInfo& info) {
    if (info.size <= 2 * block_ || !is_strong(info.etag) || this->info(key) || whole(key)) {
        return false;
    }
    cache_.put(runs_of(key), std::make_shared<CachedInfo>(info));
    return true;
}

void ObjectCache::keep_run(const std::string& key, std::uint64_t first, Value blocks) {
    cache_.put(run_name(key, first), std::move(blocks));
}

void ObjectCache::judge(const std::string& key, const ObjectInfo& now) {
    const Value value = whole(key);
    const auto known = info(key);
    note_version(key, now.version);
    if (value != nullptr && value->version() == now.version) {
        cache_.confirm(key);
        publish(key);
    } else {
        cache_.remove(key);
    }
    if (known != nullptr && known->version == now.version) {
        cache_.confirm(runs_of(key));
    } else if (known != nullptr) {
        cache_.remove_prefix(runs_of(key));
    }
}

void ObjectCache::forget(const std::string& key) {
    cache_.remove(key);
    cache_.remove_prefix(runs_of(key));
    versions_.remove(key);
}

}  // namespace ucxstore::cache

#include "cache/cached_source.hpp"

#include <algorithm>
#include <utility>

#include "cache/remote_names.hpp"
#include "storage/version.hpp"

namespace ucxstore {
namespace {

// Above any byte of UTF-8, and so behind every key.
constexpr const char* kLastKey = "\xFF";

// Nobody joins these flights from now on, and what they bring is not kept.
template <typename Flights>
void ground_all(Flights& flights, const std::string& first, const std::string& last) {
    auto at = flights.lower_bound(first);
    while (at != flights.end() && at->first <= last) {
        at->second->stale = true;
        at = flights.erase(at);
    }
}

}  // namespace

CachedSource::Value CachedSource::find(const std::string& key, const wire::Selection& wanted) {
    const std::lock_guard lock(mutex_);
    Value value = fresh(key) ? whole_or_parts(key, wanted) : nullptr;
    ++(value == nullptr ? counters_.misses : counters_.hits);
    return value;
}

void CachedSource::fetch_whole(const std::string& key, Later<Value> then) {
    std::shared_ptr<Flight> flight;
    Value value;
    {
        const std::lock_guard lock(mutex_);
        value = cache_.find(key);  // which may have come meanwhile
        if (value == nullptr) {
            const auto [at, added] = flights_.try_emplace(key);
            if (!added && freshness_.count() > 0) {  // else it may have begun before this get
                ++counters_.joined;
                at->second->waiting.push_back(std::move(then));
                return;
            }
            flight = at->second = std::make_shared<Flight>();
            flight->stale = changing(key);
            flight->waiting.push_back(std::move(then));
        }
    }
    if (value != nullptr) {
        then({std::move(value), {}});
        return;
    }
    calls_.push(GetCall{key},
                [this, key, flight](Told told) { return landed(key, flight, std::move(told)); });
}

bool CachedSource::landed(const std::string& key, const std::shared_ptr<Flight>& flight,
                          Told told) {
    Outcome<Value> outcome;
    if (const auto* object = std::get_if<Object>(&told); object && object->value) {
        object->value->set_version(version_of(object->etag, object->value->size()));
        outcome.value = object->value;
    } else {
        outcome.failure = failure_of(told);
    }
    std::vector<Later<Value>> waiting;
    bool may_be_kept = false;
    {
        const std::lock_guard lock(mutex_);
        const auto found = flights_.find(key);
        if (found != flights_.end() && found->second == flight) {
            flights_.erase(found);
        }
        may_be_kept = outcome.value != nullptr && !flight->stale;
        if (may_be_kept) {
            keep_whole(key, outcome.value);
        }
        waiting.swap(flight->waiting);
    }
    for (const auto& then : waiting) {
        then(outcome);
    }
    return may_be_kept;
}

void CachedSource::keep_whole(const std::string& key, const Value& value) {
    cache_.put(key, value);
    if (cache_.find(key) != nullptr) {
        cache_.remove_prefix(runs_of(key));  // it is not kept twice
    }
}

bool CachedSource::changing(const std::string& key) const {
    return changes_.contains(key) || std::ranges::any_of(prefixes_, [&](const auto& prefix) {
               return key.starts_with(prefix);
           });
}

// For all that is being asked about the key.
void CachedSource::ground(const std::string& key) {
    ground_all(flights_, key, key);
    ground_all(heads_, key, key);
    ground_all(runs_, runs_of(key), runs_of(key) + kLastKey);
}

void CachedSource::begin_change(const std::string& key) {
    const bool several = changing(key);
    Changes& changes = changes_[key];
    ++changes.count;
    changes.several |= several;
    ground(key);
}

// Whether it was the only one while it was under way.
bool CachedSource::end_change(const std::string& key) {
    ground(key);  // what was asked for meanwhile may bring the old value
    const auto found = changes_.find(key);
    const bool alone = !found->second.several;
    if (--found->second.count == 0) {
        changes_.erase(found);
    }
    return alone;
}

void CachedSource::begin_prefix(const std::string& prefix) {
    for (auto at = changes_.lower_bound(prefix);
         at != changes_.end() && at->first.starts_with(prefix); ++at) {
        at->second.several = true;
    }
    prefixes_.push_back(prefix);
}

void CachedSource::end_prefix(const std::string& prefix) {
    prefixes_.erase(std::ranges::find(prefixes_, prefix));
    const std::string last = prefix + kLastKey;
    ground_all(flights_, prefix, last);
    ground_all(heads_, prefix, last);
    ground_all(runs_, prefix, last);
    cache_.remove_prefix(prefix);
}

std::shared_ptr<Region> CachedSource::receive(std::uint64_t size) { return allocate_region(size); }

void CachedSource::write(const std::string& key, std::shared_ptr<Region> value, bool if_absent,
                         Later<bool> then) {
    {
        const std::lock_guard lock(mutex_);
        begin_change(key);
    }
    PutCall call{key, value, if_absent};
    calls_.push(std::move(call),
                [this, key, value = std::move(value), then = std::move(then)](Told told) mutable {
                    return stored(key, std::move(value), std::move(told), then);
                });
}

bool CachedSource::stored(const std::string& key, std::shared_ptr<Region> value, Told told,
                          const Later<bool>& then) {
    const auto* stored = std::get_if<Stored>(&told);
    const bool written = stored != nullptr && stored->written;
    if (written) {
        value->set_version(version_of(stored->etag, value->size()));
    }
    bool may_be_kept = false;
    {
        const std::lock_guard lock(mutex_);
        may_be_kept = end_change(key) && written;
        if (written || stored == nullptr) {
            forget(key);  // after a failure, nobody knows which value is there
        }
        if (may_be_kept) {
            cache_.put(key, std::move(value));
        }
    }
    then({written, stored == nullptr ? failure_of(told) : std::string()});
    return may_be_kept;
}

void CachedSource::ask(Ask ask, Later<Told> then) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto* remove = std::get_if<RemoveCall>(&ask)) {
            std::ranges::for_each(remove->keys, [this](const auto& key) { begin_change(key); });
        } else if (const auto* prefix = std::get_if<RemovePrefixCall>(&ask)) {
            begin_prefix(prefix->prefix);
        }
    }
    Call call = std::visit([](const auto& one) { return Call(one); }, ask);
    calls_.push(std::move(call), [this, ask = std::move(ask), then = std::move(then)](Told told) {
        removed(ask);
        std::string failure;
        if (const auto* failed = std::get_if<Failure>(&told)) {
            failure = failed->text;
        }
        then({std::move(told), std::move(failure)});
        return false;
    });
}

// Whether that has worked or not: after a failure, nobody knows what is there.
void CachedSource::removed(const Ask& ask) {
    const std::lock_guard lock(mutex_);
    if (const auto* remove = std::get_if<RemoveCall>(&ask)) {
        for (const std::string& key : remove->keys) {
            end_change(key);
            forget(key);
        }
    } else if (const auto* prefix = std::get_if<RemovePrefixCall>(&ask)) {
        end_prefix(prefix->prefix);
    }
}

std::uint64_t CachedSource::cached_bytes() {
    const std::lock_guard lock(mutex_);
    return cache_.bytes();
}

std::uint64_t CachedSource::evicted() {
    const std::lock_guard lock(mutex_);
    return cache_.evicted();
}

void CachedSource::close(const std::string& why) {
    calls_.close(why);
    const std::lock_guard lock(mutex_);
    cache_.clear();
}

}  // namespace ucxstore

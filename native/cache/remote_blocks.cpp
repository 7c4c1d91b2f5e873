// The blocks of large objects in a remote storage: what is asked for, who waits for it, and how it
// becomes one value. Blocks that are next to one another are fetched, kept and evicted together, as
// a run.
#include <algorithm>
#include <charconv>
#include <utility>

#include "cache/cached_source.hpp"
#include "cache/remote_names.hpp"
#include "storage/version.hpp"

namespace ucxstore {
namespace {

// Blocks in one request: more would keep the first of them waiting for the last.
constexpr std::uint64_t kMostBlocks = 8;

// How often a get begins anew because the object has changed between two blocks.
constexpr int kMostTries = 5;

// What is known of an object, as the cache keeps it.
class AboutRegion : public Region {
  public:
    explicit AboutRegion(About about) : about_(std::make_shared<const About>(std::move(about))) {}
    std::byte* data() const override { return nullptr; }
    std::uint64_t size() const override { return 0; }
    const std::shared_ptr<const About>& about() const { return about_; }

  private:
    const std::shared_ptr<const About> about_;
};

// Parts of an object can be told to be of one value only by a tag that is compared byte by byte.
bool is_strong(const std::string& etag) { return !etag.empty() && !etag.starts_with("W/"); }

bool wants_all(const wire::Selection& wanted) {
    const auto* ranges = std::get_if<std::vector<wire::Range>>(&wanted);
    return ranges != nullptr && ranges->empty();
}

// Whether no byte of it, of whatever value, lies behind the first so many.
bool lies_within(const wire::Selection& wanted, std::uint64_t extent) {
    if (const auto* box = std::get_if<Layout>(&wanted)) {
        return box->fits(extent);
    }
    return std::ranges::all_of(std::get<std::vector<wire::Range>>(wanted), [&](const auto& range) {
        return range.kind == wire::Range::Kind::range && range.b <= extent;
    });
}

}  // namespace

// A get of a part of an object, until all of its blocks are there.
struct CachedSource::Gather {
    std::string key;
    wire::Selection wanted;
    Later<Value> then = {};
    std::shared_ptr<const About> about = {};
    std::vector<PiecedRegion::Part> parts = {};
    std::size_t waits_for = 0;
    int tries = 0;
    bool changed = false;
    std::string failure = {};
};

std::shared_ptr<const About> CachedSource::about(const std::string& key) {
    const auto found = std::dynamic_pointer_cast<const AboutRegion>(cache_.find(runs_of(key)));
    return found == nullptr ? nullptr : found->about();
}

void CachedSource::forget(const std::string& key) {
    cache_.remove(key);
    cache_.remove_prefix(runs_of(key));
}

// Whether what the cache has of it may be sent without asking.
bool CachedSource::fresh(const std::string& key) const {
    if (freshness_ == kForEver) {
        return true;
    }
    auto age = cache_.age(key);
    if (!age) {
        age = cache_.age(runs_of(key));
    }
    return age && *age < freshness_;
}

// Whether there is something that must be asked about; without parts, it is fetched again instead.
bool CachedSource::stale(const std::string& key) {
    const std::lock_guard lock(mutex_);
    if (fresh(key) || (!cache_.age(key) && !cache_.age(runs_of(key)))) {
        return false;
    }
    if (block_ == 0) {
        forget(key);
    }
    return block_ != 0;
}

// Keeps what the cache has of an object if that is what it is now.
void CachedSource::judge(const std::string& key, const About& now) {
    const Value whole = cache_.find(key);
    const auto known = about(key);
    if (whole != nullptr && whole->version() == now.version) {
        cache_.confirm(key);
    } else {
        cache_.remove(key);
    }
    if (known != nullptr && known->version == now.version) {
        cache_.confirm(runs_of(key));
    } else if (known != nullptr) {
        cache_.remove_prefix(runs_of(key));
    }
}

CachedSource::Value CachedSource::whole_or_parts(const std::string& key,
                                                 const wire::Selection& wanted) {
    if (Value whole = cache_.find(key)) {
        return whole;
    }
    Gather gather{.key = key, .wanted = wanted, .about = about(key)};
    std::vector<std::uint64_t> missing;
    if (gather.about == nullptr || !take_cached(gather, missing)) {
        return nullptr;
    }
    return std::make_shared<PiecedRegion>(*gather.about, std::move(gather.parts));
}

// Pins what of it is in the cache; true where that is all.
bool CachedSource::take_cached(Gather& gather, std::vector<std::uint64_t>& missing) {
    const std::string names = runs_of(gather.key);
    for (const Run& run : blocks_of(gather.wanted, gather.about->size, block_)) {
        for (std::uint64_t block = run.first; block < run.first + run.count;) {
            const auto [name, value] = cache_.find_last(run_name(gather.key, block));
            std::uint64_t first = 0;
            std::uint64_t end = 0;
            if (value != nullptr && name.size() > names.size() && name.starts_with(names) &&
                value->version() == gather.about->version) {
                std::from_chars(name.data() + names.size(), name.data() + name.size(), first, 16);
                end = first + block_count(value->size(), block_);
            }
            if (block < end) {
                gather.parts.push_back({first * block_, value});
                block = end;
            } else {
                missing.push_back(block++);
            }
        }
    }
    return missing.empty();
}

void CachedSource::fetch(const std::string& key, const wire::Selection& wanted, Later<Value> then) {
    if (!stale(key) && (block_ == 0 || (wants_all(wanted) && !being_brought(key)))) {
        fetch_whole(key, std::move(then));
        return;
    }
    look(std::make_shared<Gather>(Gather{.key = key, .wanted = wanted, .then = std::move(then)}));
}

// Whether somebody has asked for the first blocks of it, which may be all.
bool CachedSource::being_brought(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = heads_.find(key);
    return found != heads_.end() && found->second->brings;
}

// Finds out what the object is, unless that is known. Where nothing is known of it, and its first
// blocks are wanted, these tell that too, and are all of an object that is not large.
void CachedSource::look(const std::shared_ptr<Gather>& gather) {
    Value whole;
    std::shared_ptr<HeadFlight> flight;
    bool coming = false;
    {
        const std::lock_guard lock(mutex_);
        const bool believed = fresh(gather->key);
        whole = believed ? cache_.find(gather->key) : nullptr;
        gather->about = believed ? about(gather->key) : nullptr;
        coming = whole == nullptr && gather->about == nullptr && freshness_.count() > 0 &&
                 flights_.contains(gather->key);
        if (whole == nullptr && gather->about == nullptr && !coming) {
            const auto [at, added] = heads_.try_emplace(gather->key);
            if (!added && freshness_.count() > 0) {  // else it may have begun before this get
                ++counters_.joined;
                at->second->waiting.push_back(gather);
                return;
            }
            flight = at->second = std::make_shared<HeadFlight>();
            flight->stale = changing(gather->key);
            flight->brings = !cache_.age(gather->key) && !cache_.age(runs_of(gather->key)) &&
                             lies_within(gather->wanted, 2 * block_);
            flight->waiting.push_back(gather);
        }
    }
    if (whole != nullptr) {
        gather->then({std::move(whole), {}});
    } else if (coming) {
        fetch_whole(gather->key, std::move(gather->then));
    } else if (flight == nullptr) {
        plan(gather);
    } else {
        Call call = HeadCall{gather->key};
        if (flight->brings) {
            call = GetCall{gather->key, 0, 2 * block_};
        }
        calls_.push(std::move(call), [this, key = gather->key, flight](Told told) {
            return looked(key, flight, std::move(told));
        });
    }
}

bool CachedSource::looked(const std::string& key, const std::shared_ptr<HeadFlight>& flight,
                          Told told) {
    std::shared_ptr<const About> about;
    Outcome<Value> outcome;
    std::shared_ptr<Region> first;  // blocks
    if (const auto* object = std::get_if<Object>(&told)) {
        about = std::make_shared<const About>(
            About{object->size, object->etag, version_of(object->etag, object->size)});
        first = object->value;
        if (first != nullptr) {
            first->set_version(about->version);
        }
        if (first != nullptr && first->size() == about->size) {
            outcome.value = first;
        }
    } else {
        outcome.failure = failure_of(told);
    }
    std::vector<std::shared_ptr<Gather>> waiting;
    bool may_be_kept = false;
    {
        const std::lock_guard lock(mutex_);
        may_be_kept = first != nullptr && !flight->stale;
        const auto found = heads_.find(key);
        if (found != heads_.end() && found->second == flight) {
            heads_.erase(found);
        }
        if (!flight->stale && about != nullptr) {
            judge(key, *about);
        } else if (!flight->stale && outcome.failure.empty()) {
            forget(key);
        }
        if (outcome.value != nullptr && !flight->stale) {
            keep_whole(key, outcome.value);
        } else if (about != nullptr && !flight->stale && about->size > 2 * block_ &&
                   is_strong(about->etag) && !this->about(key) && !cache_.find(key)) {
            cache_.put(runs_of(key), std::make_shared<AboutRegion>(*about));
            if (first != nullptr && first->size() == 2 * block_) {
                cache_.put(run_name(key, 0), first);
            }
        }
        waiting.swap(flight->waiting);
    }
    for (const auto& gather : waiting) {
        if (about == nullptr || outcome.value != nullptr) {
            gather->then(outcome);
        } else {
            gather->about = about;
            plan(gather);
        }
    }
    return may_be_kept;
}

// Asks for the blocks that are neither there nor on their way; or for all of the object, where it
// is small, or most of it is wanted, and none of it is there: nothing is to come twice.
void CachedSource::plan(const std::shared_ptr<Gather>& gather) {
    const About& about = *gather->about;
    std::vector<std::shared_ptr<RunFlight>> departing;
    Value cached;
    {
        const std::lock_guard lock(mutex_);
        cached = cache_.find(gather->key);
    }
    if (cached != nullptr && cached->version() == about.version) {
        gather->then({std::move(cached), {}});
        return;
    }
    bool whole = about.size <= 2 * block_ || !is_strong(about.etag);
    if (!whole) {
        const std::lock_guard lock(mutex_);
        std::vector<std::uint64_t> missing;
        take_cached(*gather, missing);
        const std::string names = runs_of(gather->key);
        const auto run = runs_.lower_bound(names);
        const bool nothing_yet =
            gather->parts.empty() && (run == runs_.end() || !run->first.starts_with(names));
        const bool coming = freshness_.count() > 0 && flights_.contains(gather->key);
        whole = !missing.empty() &&
                (coming || (nothing_yet && 2 * missing.size() > block_count(about.size, block_)));
        if (!whole) {
            departing = depart(gather, missing);
            if (gather->waits_for > 0 && departing.empty()) {
                return;  // for what others have asked for
            }
        }
    }
    if (whole) {
        fetch_whole(gather->key, std::move(gather->then));
        return;
    }
    if (departing.empty()) {
        finish(gather);
        return;
    }
    for (const auto& flight : departing) {
        const Run& run = flight->run;
        GetCall call{gather->key, run.first * block_,
                     std::min(about.size, (run.first + run.count) * block_), about.etag};
        calls_.push(std::move(call),
                    [this, key = gather->key, flight, about = gather->about](Told told) {
                        return run_landed(key, flight, *about, std::move(told));
                    });
    }
}

// Joins the flights that bring these blocks, and returns those that have yet to begin.
std::vector<std::shared_ptr<CachedSource::RunFlight>> CachedSource::depart(
    const std::shared_ptr<Gather>& gather, const std::vector<std::uint64_t>& missing) {
    const std::string& key = gather->key;
    std::vector<std::shared_ptr<RunFlight>> departing;
    const auto flight_of = [&](std::uint64_t block) -> std::shared_ptr<RunFlight> {
        auto at = runs_.upper_bound(run_name(key, block));
        if (at == runs_.begin() || !(--at)->first.starts_with(runs_of(key))) {
            return nullptr;
        }
        const RunFlight& one = *at->second;
        const bool brings =
            one.version == gather->about->version && block < one.run.first + one.run.count;
        return brings ? at->second : nullptr;
    };
    for (const std::uint64_t block : missing) {
        auto flight = flight_of(block);
        if (flight == nullptr) {
            RunFlight* last = departing.empty() ? nullptr : departing.back().get();
            if (last != nullptr && last->run.first + last->run.count == block &&
                last->run.count < kMostBlocks) {
                ++last->run.count;
                continue;
            }
            flight = std::make_shared<RunFlight>();
            flight->run = {block, 1};
            flight->version = gather->about->version;
            flight->stale = changing(key);
            departing.push_back(flight);
            runs_[run_name(key, block)] = flight;
        }
        if (flight->waiting.empty() || flight->waiting.back() != gather) {
            const bool joined = departing.empty() || departing.back() != flight;
            counters_.joined += joined ? 1 : 0;
            flight->waiting.push_back(gather);
            ++gather->waits_for;
        }
    }
    return departing;
}

bool CachedSource::run_landed(const std::string& key, const std::shared_ptr<RunFlight>& flight,
                              const About& about, Told told) {
    const std::uint64_t begin = flight->run.first * block_;
    const std::uint64_t length = std::min(about.size, begin + flight->run.count * block_) - begin;
    auto* object = std::get_if<Object>(&told);
    const bool right = object != nullptr && object->value != nullptr &&
                       object->value->size() == length && object->etag == about.etag;
    const bool changed = std::holds_alternative<Changed>(told) ||
                         std::holds_alternative<Missing>(told) || (object != nullptr && !right);
    if (right) {
        object->value->set_version(about.version);
    }
    std::vector<std::shared_ptr<Gather>> done;
    bool may_be_kept = false;
    {
        const std::lock_guard lock(mutex_);
        may_be_kept = right && !flight->stale;
        const std::string name = run_name(key, flight->run.first);
        const auto found = runs_.find(name);
        if (found != runs_.end() && found->second == flight) {
            runs_.erase(found);
        }
        const auto known = this->about(key);
        if (known != nullptr && known->version == about.version) {
            if (right && !flight->stale) {
                cache_.put(name, object->value);
            } else if (changed) {
                forget(key);
            }
        }
        for (auto& gather : flight->waiting) {
            if (right) {
                gather->parts.push_back({begin, object->value});
            } else if (changed) {
                gather->changed = true;
            } else {
                gather->failure = failure_of(told);
            }
            if (--gather->waits_for == 0) {
                done.push_back(std::move(gather));
            }
        }
        flight->waiting.clear();
    }
    for (const auto& gather : done) {
        finish(gather);
    }
    return may_be_kept;
}

void CachedSource::finish(const std::shared_ptr<Gather>& gather) {
    if (!gather->failure.empty()) {
        gather->then({nullptr, gather->failure});
    } else if (!gather->changed) {
        gather->then(
            {std::make_shared<PiecedRegion>(*gather->about, std::move(gather->parts)), {}});
    } else if (++gather->tries < kMostTries) {
        gather->changed = false;
        gather->parts.clear();
        look(gather);
    } else {
        gather->then({nullptr, "the object is being replaced again and again"});
    }
}

}  // namespace ucxstore

#include "cache/block_fetches.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/ensure.hpp"
#include "cache/run_names.hpp"
#include "storage/version.hpp"

namespace ucxstore::cache {
namespace {

// Blocks in one request: more would keep the first of them waiting for the last.
constexpr std::uint64_t kMostBlocks = 8;

// How often a get begins anew because the object has changed between two blocks.
constexpr int kMostTries = 5;

// Whether all bytes that are wanted are among the first `extent`, however long the value is.
bool lies_within(const protocol::Selection& wanted, std::uint64_t extent) {
    if (const auto* box = std::get_if<protocol::Layout>(&wanted)) {
        return box->fits(extent);
    }
    return std::ranges::all_of(
        std::get<std::vector<protocol::Range>>(wanted), [&](const auto& range) {
            return range.kind == protocol::Range::Kind::range && range.b <= extent;
        });
}

}  // namespace

struct BlockFetches::Gather {
    std::string key;
    protocol::Selection wanted;
    Later<SourceValue> then = {};
    base::Whose whose = {};
    std::shared_ptr<const ObjectInfo> info = {};
    ObjectCache::Parts parts = {};
    std::size_t waits_for = 0;  // runs
    int tries = 0;
    bool changed = false;
    std::string failure = {};
};

void BlockFetches::fetch(const std::string& key, const protocol::Selection& wanted,
                         Later<SourceValue> then, const base::Whose& whose) {
    look(std::make_shared<Gather>(
        Gather{.key = key, .wanted = wanted, .then = std::move(then), .whose = whose}));
}

bool BlockFetches::brings_first_blocks(const std::string& key) {
    const base::Lock lock(state_.mutex);
    const auto head = heads_.find(key);
    return head != nullptr && head->brings_first_blocks;
}

void BlockFetches::ground(const std::string& key) {
    heads_.ground(key);
    runs_.ground_all(runs_of(key));
}

void BlockFetches::ground_prefix(const std::string& prefix) {
    heads_.ground_all(prefix);
    runs_.ground_all(prefix);
}

// Requests the info of the object, unless it is known. Where nothing is known, and its first blocks
// are wanted, it requests these: they come with the info, and are all of an object that is not
// large.
void BlockFetches::look(const std::shared_ptr<Gather>& gather) {
    SourceValue whole;
    std::shared_ptr<HeadFlight> flight;
    bool coming = false;
    {
        const base::Lock lock(state_.mutex);
        ObjectCache& objects = state_.objects;
        const bool believed = objects.is_fresh(gather->key);
        whole = believed ? objects.whole(gather->key) : nullptr;
        gather->info = believed ? objects.info(gather->key) : nullptr;
        const bool unknown = whole == nullptr && gather->info == nullptr;
        coming = unknown && objects.may_join(gather->key) && wholes_.fetches(gather->key);
        if (unknown && !coming) {
            const auto under_way = heads_.find(gather->key);
            if (under_way != nullptr && objects.may_join(gather->key)) {
                ++state_.counters.joined;
                under_way->waiting.push_back(gather);
                return;
            }
            flight = heads_.begin(gather->key);
            flight->stale = state_.changes_now(gather->key);
            flight->brings_first_blocks =
                !objects.knows(gather->key) && lies_within(gather->wanted, 2 * block_);
            flight->waiting.push_back(gather);
        }
    }
    if (whole != nullptr) {
        gather->then({std::move(whole), {}});
    } else if (coming) {
        wholes_.fetch(gather->key, std::move(gather->then), gather->whose);
    } else if (flight == nullptr) {
        plan(gather);
    } else {
        Call call = HeadCall{gather->key};
        if (flight->brings_first_blocks) {
            call = GetCall{gather->key, 0, 2 * block_};
        }
        state_.calls.push(
            std::move(call),
            [this, key = gather->key, flight](CallResult result) {
                return looked(key, flight, std::move(result));
            },
            {}, gather->whose);
    }
}

bool BlockFetches::looked(const std::string& key, const std::shared_ptr<HeadFlight>& flight,
                          CallResult result) {
    std::shared_ptr<const ObjectInfo> info;
    Outcome<SourceValue> outcome;
    std::shared_ptr<memory::Region> first;  // blocks
    if (const auto* object = std::get_if<SourceObject>(&result)) {
        first = object->value;
        const bool whole = first != nullptr && first->size() == object->size;
        info = std::make_shared<const ObjectInfo>(
            ObjectInfo{object->size, object->etag,
                       whole ? storage::version_of(object->etag, *first)
                             : storage::version_of(object->etag, object->size)});
        if (first != nullptr) {
            first->set_version(info->version);
        }
        if (whole) {
            outcome.value = first;
        }
    } else {
        outcome.failure = failure_of(result);
    }
    Waiting waiting;
    bool may_be_kept = false;
    {
        const base::Lock lock(state_.mutex);
        may_be_kept = first != nullptr && !flight->stale;
        heads_.end(key, flight);
        if (!flight->stale && info != nullptr) {
            state_.objects.judge(key, *info);
        } else if (!flight->stale && outcome.failure.empty()) {
            state_.objects.forget(key);
        }
        if (outcome.value != nullptr && !flight->stale) {
            state_.objects.keep_whole(key, outcome.value);
        } else if (info != nullptr && !flight->stale && state_.objects.keep_info(key, *info) &&
                   first != nullptr && first->size() == 2 * block_) {
            state_.objects.keep_run(key, 0, first);
        }
        waiting.swap(flight->waiting);
    }
    for (const auto& gather : waiting) {
        if (info == nullptr || outcome.value != nullptr) {
            gather->then(outcome);
        } else {
            gather->info = info;
            plan(gather);
        }
    }
    return may_be_kept;
}

// Requests the blocks that are neither cached nor on their way, or the whole object.
void BlockFetches::plan(const std::shared_ptr<Gather>& gather) {
    const ObjectInfo& info = *gather->info;
    RunFlights departing;
    bool whole = false;
    {
        base::UniqueLock lock(state_.mutex);
        SourceValue cached = state_.objects.whole(gather->key);
        if (cached != nullptr && cached->version() == info.version) {
            lock.unlock();
            gather->then({std::move(cached), {}});
            return;
        }
        whole = info.size <= 2 * block_ || !is_strong(info.etag);
        if (!whole) {
            auto [parts, missing] = state_.objects.find_parts(gather->key, info, gather->wanted);
            std::ranges::move(parts, std::back_inserter(gather->parts));
            whole = is_better_whole(*gather, missing.size());
            if (!whole) {
                departing = depart(gather, missing);
                if (gather->waits_for > 0 && departing.empty()) {
                    return;  // it waits for what others have requested
                }
            }
        }
    }
    if (whole) {
        wholes_.fetch(gather->key, std::move(gather->then), gather->whose);
    } else if (departing.empty()) {
        finish(gather);
    }
    for (const auto& flight : departing) {
        request(*gather, flight, gather->info);
    }
}

// Whether the whole object is on its way, or most of it is wanted and none of it is there: no byte
// is to come twice.
bool BlockFetches::is_better_whole(const Gather& gather, std::uint64_t missing) const {
    if (missing == 0) {
        return false;
    }
    const bool coming = state_.objects.may_join(gather.key) && wholes_.fetches(gather.key);
    const bool nothing_yet = gather.parts.empty() && !runs_.any_of(runs_of(gather.key));
    return coming || (nothing_yet && 2 * missing > block_count(gather.info->size, block_));
}

// Joins the flights that bring these blocks, and returns those that have yet to begin.
BlockFetches::RunFlights BlockFetches::depart(const std::shared_ptr<Gather>& gather,
                                              const std::vector<std::uint64_t>& missing) {
    const std::string& key = gather->key;
    RunFlights departing;
    const auto flight_of = [&](std::uint64_t block) -> std::shared_ptr<RunFlight> {
        auto flight = runs_.find_last(run_name(key, block), runs_of(key));
        const bool brings = flight != nullptr && flight->version == gather->info->version &&
                            block < flight->run.first + flight->run.count;
        return brings ? std::move(flight) : nullptr;
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
            flight = runs_.begin(run_name(key, block));
            flight->run = {block, 1};
            flight->version = gather->info->version;
            flight->stale = state_.changes_now(key);
            departing.push_back(flight);
        }
        if (flight->waiting.empty() || flight->waiting.back() != gather) {
            const bool joined = departing.empty() || departing.back() != flight;
            state_.counters.joined += joined ? 1 : 0;
            flight->waiting.push_back(gather);
            ++gather->waits_for;
        }
    }
    return departing;
}

void BlockFetches::request(const Gather& gather, const std::shared_ptr<RunFlight>& flight,
                           const std::shared_ptr<const ObjectInfo>& info) {
    const std::string& key = gather.key;
    const Run& run = flight->run;
    GetCall call{key, run.first * block_, std::min(info->size, (run.first + run.count) * block_),
                 info->etag};
    state_.calls.push(
        std::move(call),
        [this, key, flight, info](CallResult result) {
            return landed(key, flight, *info, std::move(result));
        },
        {}, gather.whose);
}

bool BlockFetches::landed(const std::string& key, const std::shared_ptr<RunFlight>& flight,
                          const ObjectInfo& info, CallResult result) {
    const std::uint64_t begin = flight->run.first * block_;
    const std::uint64_t length = std::min(info.size, begin + flight->run.count * block_) - begin;
    auto* object = std::get_if<SourceObject>(&result);
    const bool right = object != nullptr && object->value != nullptr &&
                       object->value->size() == length && object->etag == info.etag;
    const bool changed = std::holds_alternative<Changed>(result) ||
                         std::holds_alternative<Missing>(result) || (object != nullptr && !right);
    if (right) {
        object->value->set_version(info.version);
    }
    Waiting done;
    bool may_be_kept = false;
    {
        const base::Lock lock(state_.mutex);
        may_be_kept = right && !flight->stale;
        runs_.end(run_name(key, flight->run.first), flight);
        const auto known = state_.objects.info(key);
        if (known != nullptr && known->version == info.version) {
            if (right && !flight->stale) {
                state_.objects.keep_run(key, flight->run.first, object->value);
            } else if (changed) {
                state_.objects.forget(key);
            }
        }
        for (auto& gather : flight->waiting) {
            if (right) {
                gather->parts.push_back({begin, object->value});
            } else if (changed) {
                gather->changed = true;
            } else {
                gather->failure = failure_of(result);
            }
            base::ensure(gather->waits_for > 0, "a run lands once");
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

void BlockFetches::finish(const std::shared_ptr<Gather>& gather) {
    if (!gather->failure.empty()) {
        gather->then({nullptr, gather->failure});
    } else if (!gather->changed) {
        gather->then({std::make_shared<PiecedRegion>(*gather->info, std::move(gather->parts)), {}});
    } else if (++gather->tries < kMostTries) {
        gather->changed = false;
        gather->parts.clear();
        look(gather);
    } else {
        gather->then({nullptr, "the object is being replaced again and again"});
    }
}

}  // namespace ucxstore::cache

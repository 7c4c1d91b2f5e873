#include "cache/cached_source.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/status.hpp"
#include "cache/cache_shelf.hpp"
#include "memory/copier.hpp"
#include "memory/recycler.hpp"
#include "storage/version.hpp"

namespace ucxstore::cache {
namespace {

bool wants_all(const protocol::Selection& wanted) {
    const auto* ranges = std::get_if<std::vector<protocol::Range>>(&wanted);
    return ranges != nullptr && ranges->empty();
}

}  // namespace

std::shared_ptr<CachedSource> CachedSource::make(std::uint64_t cache_bytes,
                                                 std::uint64_t block_bytes,
                                                 std::chrono::milliseconds freshness,
                                                 std::uint64_t write_bytes, bool visible) {
    auto shelf =
        visible ? make_cache_shelf(cache_bytes, memory::Recycler::instance().limit()) : nullptr;
    return std::make_shared<CachedSource>(cache_bytes, block_bytes, freshness, write_bytes,
                                          Cache::Clock::now, std::move(shelf));
}

CachedSource::Value CachedSource::find(const std::string& key, const protocol::Selection& wanted) {
    const base::Lock lock(state_.mutex);
    ObjectCache& objects = state_.objects;
    Value value = objects.is_fresh(key) ? objects.find(key, wanted) : nullptr;
    ++(value == nullptr ? state_.counters.misses : state_.counters.hits);
    return value;
}

void CachedSource::fetch(const std::string& key, const protocol::Selection& wanted,
                         Later<Value> then, const base::Whose& whose) {
    if (!is_stale(key) &&
        (block_ == 0 || (wants_all(wanted) && !blocks_.brings_first_blocks(key)))) {
        wholes_.fetch(key, std::move(then), whose);
    } else {
        blocks_.fetch(key, wanted, std::move(then), whose);
    }
}

// Whether the cache has a value of it that the source must be asked about. Without blocks, the
// value is dropped and fetched again instead.
bool CachedSource::is_stale(const std::string& key) {
    const base::Lock lock(state_.mutex);
    if (state_.objects.is_fresh(key) || !state_.objects.knows(key)) {
        return false;
    }
    if (block_ == 0) {
        state_.objects.forget(key);
    }
    return block_ != 0;
}

// A copy of a value on the shelf; nullptr where there is no room for it.
std::shared_ptr<memory::Region> CachedSource::copy_to_shelf(const std::string& key,
                                                            const memory::Region& value) {
    std::shared_ptr<memory::Region> copy;
    try {
        copy = shelf_->allocate(key, value.size());
    } catch (const base::Error&) {
        return nullptr;
    }
    const ucp_dt_iov_t target{copy->data(), copy->size()};
    memory::Copier({&target, 1}).scatter(0, value.data(), value.size(), memory::Write::past_caches);
    copy->set_version(value.version());
    return copy;
}

CachedSource::Value CachedSource::show(const std::string& key, const Value& value, bool may_copy) {
    const auto shown = [&](const Value& kept) {
        const bool same = kept != nullptr && kept->version() == value->version();
        return same && shelf_->holds(*kept) ? kept : nullptr;
    };
    if (shelf_ == nullptr || value->pieced()) {
        return nullptr;
    }
    {
        const base::Lock lock(state_.mutex);
        const Value kept = state_.objects.fresh_whole(key);
        if (kept != value || shelf_->holds(*value)) {
            return shown(kept);
        }
    }
    const auto copy = may_copy ? copy_to_shelf(key, *value) : nullptr;
    if (copy == nullptr) {
        return nullptr;
    }
    const base::Lock lock(state_.mutex);
    const Value kept = state_.objects.fresh_whole(key);
    if (kept != value) {
        return shown(kept);
    }
    state_.objects.put_on_shelf(key, copy);
    return copy;
}

std::shared_ptr<memory::Region> CachedSource::receive(std::uint64_t size) {
    return memory::allocate_region(size, memory::Kept::for_long);
}

void CachedSource::write(const std::string& key, std::shared_ptr<memory::Region> value,
                         bool if_absent, Later<bool> then, Calls::Moves moves,
                         const base::Whose& whose) {
    PutCall call{key, value, if_absent};
    state_.calls.push(
        std::move(call),
        [this, key, value = std::move(value), then = std::move(then)](CallResult result) mutable {
            return stored(key, std::move(value), std::move(result), then);
        },
        std::move(moves), whose);
}

bool CachedSource::stored(const std::string& key, std::shared_ptr<memory::Region> value,
                          CallResult result, const Later<bool>& then) {
    const auto* stored = std::get_if<Stored>(&result);
    const bool written = stored != nullptr && stored->written;
    if (written) {
        value->set_version(storage::version_of(stored->etag, *value));
    }
    bool may_be_kept = false;
    {
        const base::Lock lock(state_.mutex);
        may_be_kept = written && stored->may_be_kept;
        if (may_be_kept) {
            state_.objects.keep_written(key, std::move(value));
        } else if (written || stored == nullptr) {
            state_.objects.forget(key);  // nobody knows which value is there
        }
    }
    then({written, stored == nullptr ? failure_of(result) : std::string(), is_unknown(result)});
    return may_be_kept;
}

void CachedSource::call(StorageCall call, Later<CallResult> then, Calls::Moves moves,
                        const base::Whose& whose) {
    Call queued = std::visit([](const auto& one) { return Call(one); }, call);
    state_.calls.push(
        std::move(queued),
        [then = std::move(then)](CallResult result) {
            std::string failure;
            if (const auto* failed = std::get_if<Failure>(&result)) {
                failure = failed->text;
            }
            then({std::move(result), std::move(failure)});
            return false;
        },
        std::move(moves), whose);
}

void CachedSource::set_lease_end(std::uint64_t until) {
    const base::Lock lock(state_.mutex);
    state_.objects.set_lease_end(until);
}

void CachedSource::forget_all() {
    const base::Lock lock(state_.mutex);
    wholes_.ground_prefix("");
    blocks_.ground_prefix("");
    state_.objects.clear();
}

CachedSource::Flushed CachedSource::flush(const std::string& name) {
    const base::Lock lock(state_.mutex);
    ObjectCache& objects = state_.objects;
    const std::uint64_t before = objects.bytes();
    if (name.empty()) {
        wholes_.ground_prefix("");
        blocks_.ground_prefix("");
        objects.clear();
    } else {
        wholes_.ground(name);
        blocks_.ground(name);
        objects.forget(name);
        wholes_.ground_prefix(name + "/");
        blocks_.ground_prefix(name + "/");
        objects.forget_prefix(name + "/");
    }
    std::uint64_t read = 0;
    if (shelf_ != nullptr) {
        shelf_->sweep();
        read = shelf_->waiting();
    }
    const std::uint64_t after = objects.bytes();
    return {before - std::min(before, after), read};
}

bool CachedSource::believes(const std::string& key) {
    const base::Lock lock(state_.mutex);
    return state_.objects.lease().covers(key);
}

std::optional<std::uint64_t> CachedSource::believed_version(const std::string& key) {
    const base::Lock lock(state_.mutex);
    return state_.objects.believed_version(key);
}

void CachedSource::note_versions() {
    const base::Lock lock(state_.mutex);
    state_.objects.note_versions();
}

void CachedSource::begin_asking(const Names& names) {
    const base::Lock lock(state_.mutex);
    for (const std::string& key : names.keys) {
        state_.objects.lease().begin_asking(key);
        wholes_.ground(key);
        blocks_.ground(key);
        state_.objects.forget(key);
    }
    for (const std::string& prefix : names.prefixes) {
        state_.objects.lease().begin_asking_prefix(prefix);
        wholes_.ground_prefix(prefix);
        blocks_.ground_prefix(prefix);
        state_.objects.forget_prefix(prefix);
    }
}

// What is on its way began while the source could have had either value.
void CachedSource::end_asking(const Names& names) {
    const base::Lock lock(state_.mutex);
    for (const std::string& key : names.keys) {
        wholes_.ground(key);
        blocks_.ground(key);
        state_.objects.lease().end_asking(key);
    }
    for (const std::string& prefix : names.prefixes) {
        wholes_.ground_prefix(prefix);
        blocks_.ground_prefix(prefix);
        state_.objects.lease().end_asking_prefix(prefix);
    }
}

std::uint64_t CachedSource::hits() const {
    return state_.counters.hits + (shelf_ == nullptr ? 0 : shelf_->seen_unasked());
}

std::uint64_t CachedSource::cached_bytes() {
    const base::Lock lock(state_.mutex);
    return state_.objects.bytes();
}

std::uint64_t CachedSource::evicted() {
    const base::Lock lock(state_.mutex);
    return state_.objects.evicted();
}

std::uint64_t CachedSource::evicted_bytes() {
    const base::Lock lock(state_.mutex);
    return state_.objects.evicted_bytes();
}

void CachedSource::close(const std::string& why) {
    state_.calls.close(why);
    const base::Lock lock(state_.mutex);
    state_.objects.clear();
}

}  // namespace ucxstore::cache

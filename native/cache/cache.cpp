#include "cache/cache.hpp"

#include <algorithm>
#include <functional>

namespace ucxstore {
namespace {

// What an entry takes beside its key and its value: nodes of a map and a list, a region's own.
constexpr std::uint64_t kSlotBytes = 320;
// What a ghost takes.
constexpr std::uint64_t kGhostBytes = 128;

// As the paper has them: a tenth of the cache for what is new, and uses counted up to 3.
constexpr std::uint64_t kSmallPart = 10;
constexpr unsigned kMostUses = 3;

// A fiftieth of the cache for ghosts.
constexpr std::uint64_t kGhostPart = 50;

// Where other processes read, so much more than needed is evicted at a time: whether they still
// read it is then looked up once for many values.
constexpr std::uint64_t kAheadPart = 64;

}  // namespace

std::uint64_t Cache::ghost_bytes() const { return ghosts_.size() * kGhostBytes; }

Cache::Value Cache::find(const std::string& key) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) {
        return nullptr;
    }
    Slot& slot = found->second;
    slot.uses = std::min(slot.uses + 1, kMostUses);
    return slot.value;
}

Cache::Value Cache::peek(const std::string& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? nullptr : found->second.value;
}

void Cache::exchange(const std::string& key, Value equal) {
    slots_.at(key).value = std::move(equal);
}

std::optional<Cache::Clock::time_point> Cache::confirmed(const std::string& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? std::nullopt : std::optional(found->second.confirmed);
}

std::pair<std::string, Cache::Value> Cache::find_last(const std::string& key) {
    auto found = slots_.upper_bound(key);
    if (found == slots_.begin()) {
        return {};
    }
    --found;
    found->second.uses = std::min(found->second.uses + 1, kMostUses);
    return {found->first, found->second.value};
}

void Cache::put(const std::string& key, Value value) {
    remove(key);
    const std::uint64_t bytes =
        readers_ == nullptr ? value->size() : readers_->bytes_of(key, *value);
    const std::uint64_t charge = bytes + key.size() + kSlotBytes;
    const bool again = recall(key);
    if (!make_room(charge)) {
        return;
    }
    const auto slot = slots_.try_emplace(key).first;
    slot->second.value = std::move(value);
    slot->second.charge = charge;
    slot->second.confirmed = now_();
    enter(slot, again);
}

std::optional<Cache::Clock::duration> Cache::age(const std::string& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? std::nullopt : std::optional(now_() - found->second.confirmed);
}

void Cache::confirm(const std::string& key) {
    const auto found = slots_.find(key);
    if (found != slots_.end()) {
        found->second.confirmed = now_();
    }
}

void Cache::remove(const std::string& key) {
    const auto found = slots_.find(key);
    if (found != slots_.end()) {
        drop(found);
    }
}

void Cache::remove_prefix(const std::string& prefix) {
    auto at = slots_.lower_bound(prefix);
    while (at != slots_.end() && at->first.starts_with(prefix)) {
        drop(at++);
    }
}

void Cache::clear() {
    remove_prefix("");
    ghosts_.clear();
    ghost_of_.clear();
    ghost_charge_ = 0;
}

void Cache::enter(Slots::iterator slot, bool in_main) {
    Queue& queue = in_main ? main_ : small_;
    queue.push_front(slot);
    slot->second.at = queue.begin();
    slot->second.in_main = in_main;
    (in_main ? main_bytes_ : small_bytes_) += slot->second.charge;
}

void Cache::leave(Slots::iterator slot) {
    const Slot& one = slot->second;
    (one.in_main ? main_ : small_).erase(one.at);
    (one.in_main ? main_bytes_ : small_bytes_) -= one.charge;
}

void Cache::drop(Slots::iterator slot) {
    leave(slot);
    const Slot& one = slot->second;
    if (readers_ != nullptr) {
        readers_->withdraw(*one.value);
    }
    if (one.value.use_count() > 1) {
        left_.emplace_back(one.value, one.charge);
        left_bytes_ += one.charge;
    }
    slots_.erase(slot);
}

bool Cache::make_room(std::uint64_t charge) {
    sweep();
    if (charge > capacity_) {
        return false;
    }
    return readers_ == nullptr ? evict_to(capacity_ - charge) : make_room_beside_readers(charge);
}

// What is evicted is free once nobody reads it. If much is read for long, there is less room.
bool Cache::make_room_beside_readers(std::uint64_t charge) {
    const std::uint64_t most = capacity_ - charge;
    if (bytes() <= most) {
        return true;
    }
    std::uint64_t evicted_before = 0;
    do {
        readers_->sweep();
        const std::uint64_t waiting = readers_->waiting();
        if (waiting > most) {
            return false;
        }
        if (held() <= most - waiting) {
            return true;
        }
        evicted_before = evicted_;
        evict_to(most - waiting - std::min(most - waiting, capacity_ / kAheadPart));
    } while (evicted_ > evicted_before);
    return false;
}

// Evicts until the cache holds no more; false where it cannot.
bool Cache::evict_to(std::uint64_t bytes) {
    // Each entry may be looked at once for each of its uses, once in the small queue, and once
    // more. Entries that are being sent are passed over. If all are, there is no room.
    // What readers count is added in the first round only: one who counts on and on keeps nothing.
    const std::size_t first_round = slots_.size();
    const std::size_t most_looks = (kMostUses + 2) * first_round;
    for (std::size_t looks = 0; held() > bytes; ++looks) {
        if (looks == most_looks || slots_.empty()) {
            return false;
        }
        const bool counts = looks < first_round;
        if (main_.empty() || (!small_.empty() && small_bytes_ >= capacity_ / kSmallPart)) {
            pass_small(counts);
        } else {
            pass_main(counts);
        }
    }
    return true;
}

void Cache::count_uses(Slot& slot) {
    if (readers_ != nullptr) {
        slot.uses = std::min(slot.uses + readers_->take_uses(*slot.value), kMostUses);
    }
}

// Evicts the oldest of the small queue, or moves it to the main one.
void Cache::pass_small(bool counts) {
    const auto slot = small_.back();
    Slot& one = slot->second;
    if (counts) {
        count_uses(one);
    }
    if (one.uses > 1 || one.value.use_count() > 1) {
        leave(slot);
        one.uses = 0;
        enter(slot, true);
        return;
    }
    const std::string key = slot->first;
    const std::uint64_t charge = one.charge;
    evict(slot);
    remember(key, charge);
}

// Evicts the oldest of the main queue, or moves it to the front again.
void Cache::pass_main(bool counts) {
    const auto slot = main_.back();
    Slot& one = slot->second;
    if (counts) {
        count_uses(one);
    }
    if (one.uses > 0 || one.value.use_count() > 1) {
        one.uses -= one.uses > 0 ? 1 : 0;
        main_.splice(main_.begin(), main_, one.at);
        return;
    }
    evict(slot);
}

void Cache::evict(Slots::iterator slot) {
    ++evicted_;
    evictions_.add(slot->second.charge);
    drop(slot);
}

void Cache::remember(const std::string& key, std::uint64_t charge) {
    const std::size_t hash = std::hash<std::string>()(key);
    if (ghost_of_.contains(hash)) {
        return;
    }
    ghosts_.push_front({hash, charge});
    ghost_of_.emplace(hash, ghosts_.begin());
    ghost_charge_ += charge;
    while (!ghosts_.empty() &&
           (ghost_charge_ > capacity_ || ghost_bytes() > capacity_ / kGhostPart)) {
        ghost_charge_ -= ghosts_.back().charge;
        ghost_of_.erase(ghosts_.back().hash);
        ghosts_.pop_back();
    }
}

bool Cache::recall(const std::string& key) {
    const auto found = ghost_of_.find(std::hash<std::string>()(key));
    if (found == ghost_of_.end()) {
        return false;
    }
    ghost_charge_ -= found->second->charge;
    ghosts_.erase(found->second);
    ghost_of_.erase(found);
    return true;
}

void Cache::sweep() {
    std::erase_if(left_, [this](const auto& one) {
        const bool gone = one.first.expired();
        left_bytes_ -= gone ? one.second : 0;
        return gone;
    });
}

}  // namespace ucxstore

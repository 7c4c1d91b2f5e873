#include "cache/cache.hpp"

#include <algorithm>

namespace ucxstore::cache {
namespace {

// What an entry takes beside its key and its value: nodes of a map, a region's own.
constexpr std::uint64_t kSlotBytes = 320;

// Where other processes read, so much more than needed is evicted at a time: whether they still
// read it is then looked up once for many values.
constexpr std::uint64_t kAheadPart = 64;

}  // namespace

Cache::Value Cache::find(const std::string& key) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) {
        return nullptr;
    }
    found->second.note_use();
    return found->second.value;
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
    found->second.note_use();
    return {found->first, found->second.value};
}

std::uint64_t Cache::charge_of(const std::string& key, std::uint64_t bytes) const {
    const std::uint64_t taken = readers_ == nullptr ? bytes : readers_->bytes_of(key, bytes);
    return taken + key.size() + kSlotBytes;
}

void Cache::make_room_for(const std::string& key, std::uint64_t bytes) {
    make_room(charge_of(key, bytes));
}

void Cache::put(const std::string& key, Value value) {
    remove(key);
    const std::uint64_t charge = charge_of(key, value->size());
    const bool again = order_.recall(key);
    if (!make_room(charge)) {
        return;
    }
    const auto slot = slots_.try_emplace(key).first;
    slot->second.value = std::move(value);
    slot->second.confirmed = now_();
    order_.add(slot->second, slot->first, charge, again);
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
    order_.forget_ghosts();
}

void Cache::drop(Slots::iterator slot) {
    Slot& one = slot->second;
    order_.remove(one);
    if (readers_ != nullptr) {
        readers_->withdraw(*one.value);
    }
    if (one.value.use_count() > 1) {
        left_.emplace_back(one.value, one.charge());
        left_bytes_ += one.charge();
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
    storage::S3Fifo::Search search(order_, *this);
    while (held() > bytes) {
        if (search.over()) {
            return false;
        }
        if (const storage::S3Fifo::Entry* const entry = search.look()) {
            ++evicted_;
            evicted_bytes_ += entry->charge();
            evictions_.add(entry->charge());
            drop(slots_.find(entry->key()));
        }
    }
    return true;
}

void Cache::sweep() {
    std::erase_if(left_, [this](const auto& one) {
        const bool gone = one.first.expired();
        left_bytes_ -= gone ? one.second : 0;
        return gone;
    });
}

}  // namespace ucxstore::cache

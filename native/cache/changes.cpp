#include "cache/changes.hpp"

#include <algorithm>

#include "base/ensure.hpp"

namespace ucxstore {

namespace {

// For so long after a removal of a prefix was given up, nothing below it is kept.
constexpr auto kPrefixDoubt = std::chrono::minutes(5);

}  // namespace

bool Changes::includes(const std::string& key) const {
    return is_changing(key) || doubtful_.contains(key) ||
           (!doubtful_prefixes_.empty() &&
            std::ranges::any_of(doubtful_prefixes_, [&](const auto& entry) {
                return key.starts_with(entry.first) && Clock::now() < entry.second;
            }));
}

bool Changes::is_changing(const std::string& key) const {
    return keys_.contains(key) || std::ranges::any_of(prefixes_, [&](const auto& prefix) {
               return key.starts_with(prefix);
           });
}

void Changes::begin(const std::string& key) {
    const bool several = is_changing(key);
    OfKey& changes = keys_[key];
    ++changes.count;
    changes.several |= several;
}

bool Changes::end(const std::string& key) {
    const auto found = keys_.find(key);
    ensure(found != keys_.end(), "a change that ends has begun");
    const bool alone = !found->second.several;
    if (--found->second.count == 0) {
        keys_.erase(found);
    }
    return alone;
}

void Changes::disturb(const std::string& key) {
    if (const auto found = keys_.find(key); found != keys_.end()) {
        found->second.several = true;
    }
}

void Changes::disturb_prefix(const std::string& prefix) {
    for (auto at = keys_.lower_bound(prefix); at != keys_.end() && at->first.starts_with(prefix);
         ++at) {
        at->second.several = true;
    }
}

void Changes::begin_prefix(const std::string& prefix) {
    disturb_prefix(prefix);
    prefixes_.push_back(prefix);
}

void Changes::end_prefix(const std::string& prefix) {
    const auto found = std::ranges::find(prefixes_, prefix);
    ensure(found != prefixes_.end(), "a change that ends has begun");
    prefixes_.erase(found);
}

void Changes::doubt_prefix(const std::string& prefix) {
    std::erase_if(doubtful_prefixes_,
                  [](const auto& entry) { return entry.second <= Clock::now(); });
    doubtful_prefixes_[prefix] = Clock::now() + kPrefixDoubt;
}

void Changes::settle_prefix(const std::string& prefix) {
    const auto below = [&](const std::string& name) { return name.starts_with(prefix); };
    std::erase_if(doubtful_, below);
    std::erase_if(doubtful_prefixes_, [&](const auto& entry) { return below(entry.first); });
}

}  // namespace ucxstore

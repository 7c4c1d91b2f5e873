#include "cache/changes.hpp"

#include <algorithm>

#include "base/ensure.hpp"

namespace ucxstore {

bool Changes::includes(const std::string& key) const {
    return keys_.contains(key) || std::ranges::any_of(prefixes_, [&](const auto& prefix) {
               return key.starts_with(prefix);
           });
}

void Changes::begin(const std::string& key) {
    const bool several = includes(key);
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

void Changes::begin_prefix(const std::string& prefix) {
    for (auto at = keys_.lower_bound(prefix); at != keys_.end() && at->first.starts_with(prefix);
         ++at) {
        at->second.several = true;
    }
    prefixes_.push_back(prefix);
}

void Changes::end_prefix(const std::string& prefix) {
    const auto found = std::ranges::find(prefixes_, prefix);
    ensure(found != prefixes_.end(), "a change that ends has begun");
    prefixes_.erase(found);
}

}  // namespace ucxstore

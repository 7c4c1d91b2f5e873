// What a cache may answer without asking its source, where other servers write there, too: nothing
// once its lease is over, and no key that it was told to ask for, since it changes, or may. Who
// says so keeps count: docs/consistency.md has the argument.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "base/boot_clock.hpp"

namespace ucxstore::cache {

// Not thread-safe.
class Lease {
  public:
    static constexpr std::uint64_t kForEver = ~std::uint64_t{0};

    // Whether values of the key that the cache has may be sent.
    bool covers(const std::string& key) const { return holds() && !asks(key); }
    bool holds() const { return until_ == kForEver || base::boot_nanoseconds() < until_; }
    // Whether the source must be asked about it, since it is being changed.
    bool asks(const std::string& key) const {
        return (!keys_.empty() && keys_.contains(key)) ||
               std::ranges::any_of(prefixes_,
                                   [&](const auto& one) { return key.starts_with(one); });
    }

    // Until when it holds, on boot_nanoseconds().
    void set_end(std::uint64_t until) { until_ = until; }
    // Not even while it holds: from when it begins until it ends, however often it has begun.
    void begin_asking(const std::string& key) { keys_.insert(key); }
    void end_asking(const std::string& key) { keys_.erase(key); }
    void begin_asking_prefix(const std::string& prefix) { prefixes_.insert(prefix); }
    void end_asking_prefix(const std::string& prefix) { prefixes_.erase(prefix); }

  private:
    std::uint64_t until_ = kForEver;
    std::set<std::string, std::less<>> keys_;
    std::set<std::string, std::less<>> prefixes_;
};

}  // namespace ucxstore::cache

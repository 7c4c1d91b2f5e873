// What a cache may answer without asking its source, where other servers write there, too: nothing
// once its lease is over, and no key that is being changed. docs/consistency.md has the argument.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "base/boot_clock.hpp"
#include "base/ensure.hpp"

namespace ucxstore {

// Not thread-safe.
class Lease {
  public:
    static constexpr std::uint64_t kForEver = ~std::uint64_t{0};

    // Whether values of the key that the cache has may be sent.
    bool covers(const std::string& key) const { return holds() && !asks(key); }
    bool holds() const { return until_ == kForEver || boot_nanoseconds() < until_; }
    // Whether the source must be asked about it, since it is being changed.
    bool asks(const std::string& key) const {
        return (!keys_.empty() && keys_.contains(key)) ||
               std::ranges::any_of(prefixes_,
                                   [&](const auto& one) { return key.starts_with(one.first); });
    }

    // Until when it holds, on boot_nanoseconds().
    void set_end(std::uint64_t until) { until_ = until; }
    // These are counted: each beginning has its end.
    void begin_asking(const std::string& key) { ++keys_[key]; }
    void end_asking(const std::string& key) { end(keys_, key); }
    void begin_asking_prefix(const std::string& prefix) { ++prefixes_[prefix]; }
    void end_asking_prefix(const std::string& prefix) { end(prefixes_, prefix); }

  private:
    using Counts = std::map<std::string, std::uint64_t, std::less<>>;

    static void end(Counts& counts, const std::string& name) {
        const auto found = counts.find(name);
        ensure(found != counts.end(), "what ends has begun");
        if (--found->second == 0) {
            counts.erase(found);
        }
    }

    std::uint64_t until_ = kForEver;
    Counts keys_;
    Counts prefixes_;
};

}  // namespace ucxstore

// Changes under way: keys that are being written or removed, and those of which nobody knows
// whether they were. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace ucxstore {

class Changes {
  public:
    // Whether what is fetched of the key now may not be kept.
    bool includes(const std::string& key) const;

    void begin(const std::string& key);
    // Whether it was the only change of the key while it was under way. If not, nobody knows which
    // was the last.
    bool end(const std::string& key);
    // Somebody else changes it, too: nobody knows which change is the last.
    void disturb(const std::string& key);
    void disturb_prefix(const std::string& prefix);
    void begin_prefix(const std::string& prefix);
    void end_prefix(const std::string& prefix);

    // The source may still make a change that has ended for us, until one is settled.
    void doubt(const std::string& key) { doubtful_.insert(key); }
    void settle(const std::string& key) { doubtful_.erase(key); }
    // The same of a removal. It ends after some minutes, as later changes of single keys do not
    // tell of the others.
    void doubt_prefix(const std::string& prefix);
    void settle_prefix(const std::string& prefix);

  private:
    bool is_changing(const std::string& key) const;

    struct OfKey {
        std::uint64_t count = 0;
        bool several = false;
    };

    std::map<std::string, OfKey, std::less<>> keys_;
    std::vector<std::string> prefixes_;  // that are being removed
    std::set<std::string, std::less<>> doubtful_;
    std::map<std::string, TimePoint, std::less<>> doubtful_prefixes_;  // until when
};

}  // namespace ucxstore

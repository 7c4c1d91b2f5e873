// Changes under way: keys that are being written or removed. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ucxstore {

class Changes {
  public:
    bool includes(const std::string& key) const;

    void begin(const std::string& key);
    // Whether it was the only change of the key while it was under way. If not, nobody knows which
    // was the last.
    bool end(const std::string& key);
    void begin_prefix(const std::string& prefix);
    void end_prefix(const std::string& prefix);

  private:
    struct OfKey {
        std::uint64_t count = 0;
        bool several = false;
    };

    std::map<std::string, OfKey, std::less<>> keys_;
    std::vector<std::string> prefixes_;  // that are being removed
};

}  // namespace ucxstore

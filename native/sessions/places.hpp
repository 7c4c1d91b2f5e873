// How many sessions a server may have, and how many of them are of each origin: of the host, or
// the user of this host, that clients come from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"

namespace ucxstore::sessions {

// Any thread.
class Places : public std::enable_shared_from_this<Places> {
  public:
    static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
    // This part of the limit is kept for origins that have less than that: so one that has all the
    // others, and uses each, does not keep them out.
    static constexpr std::uint64_t kKept = 8;

    explicit Places(std::uint64_t most = kNoLimit) : most_(most) {}

    // Taken until the last copy goes, whether there is room or not.
    using Place = std::shared_ptr<const void>;
    Place take(const std::string& origin);
    // Whether there is one for this origin.
    bool has_room(const std::string& origin) const;
    // The origins whose sessions may end for one more of this origin, in this order: those that
    // have more, the one with most first, and itself.
    std::vector<std::string> that_may_yield(const std::string& origin) const;
    // Why this origin gets none: names the limit.
    std::string refusal(const std::string& origin) const;

  private:
    class Taken;

    std::uint64_t of(const std::string& origin) const REQUIRES(mutex_);

    const std::uint64_t most_;
    mutable base::Mutex mutex_;
    std::uint64_t taken_ GUARDED_BY(mutex_) = 0;
    std::map<std::string, std::uint64_t> taken_by_ GUARDED_BY(mutex_);
};

}  // namespace ucxstore::sessions

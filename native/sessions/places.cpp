#include "sessions/places.hpp"

#include <algorithm>
#include <utility>

namespace ucxstore::sessions {

class Places::Taken {
  public:
    Taken(std::shared_ptr<Places> places, std::string origin)
        : places_(std::move(places)), origin_(std::move(origin)) {
        const base::Lock lock(places_->mutex_);
        ++places_->taken_by_[origin_];
        ++places_->taken_;
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() {
        const base::Lock lock(places_->mutex_);
        --places_->taken_;
        const auto found = places_->taken_by_.find(origin_);
        if (--found->second == 0) {
            places_->taken_by_.erase(found);
        }
    }

  private:
    const std::shared_ptr<Places> places_;
    const std::string origin_;
};

Places::Place Places::take(const std::string& origin) {
    return std::make_shared<const Taken>(shared_from_this(), origin);
}

std::uint64_t Places::of(const std::string& origin) const {
    const auto found = taken_by_.find(origin);
    return found == taken_by_.end() ? 0 : found->second;
}

bool Places::has_room(const std::string& origin) const {
    const base::Lock lock(mutex_);
    const std::uint64_t kept = most_ / kKept;
    return taken_ < most_ - kept || (taken_ < most_ && of(origin) < kept);
}

std::vector<std::string> Places::that_may_yield(const std::string& origin) const {
    std::vector<std::pair<std::uint64_t, std::string>> found;
    {
        const base::Lock lock(mutex_);
        const std::uint64_t own = of(origin);
        for (const auto& [one, count] : taken_by_) {
            if (count > own || one == origin) {
                found.emplace_back(count, one);
            }
        }
    }
    std::ranges::sort(found, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> origins;
    for (auto& [count, one] : found) {
        origins.push_back(std::move(one));
    }
    return origins;
}

std::string Places::refusal(const std::string& origin) const {
    const base::Lock lock(mutex_);
    std::string text = std::to_string(taken_) + " of the " + std::to_string(most_) +
                       " sessions that the server may have are in use (max_sessions), " +
                       std::to_string(of(origin)) + " of them by " + origin;
    if (taken_ < most_) {
        text += ", and the rest is kept for others";
    }
    return text + "; none of them can be ended to make room";
}

}  // namespace ucxstore::sessions

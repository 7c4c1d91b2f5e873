#include "server/get_budget.hpp"

#include <algorithm>

namespace ucxstore {

bool GetBudget::Account::add(std::uint64_t bytes) {
    const std::uint64_t needed = bytes_ + bytes;
    if (needed > taken_ + kUnit) {
        const std::uint64_t more = (needed - taken_ - 1) / kUnit * kUnit;
        if (!budget_->take(more, origin_)) {
            return false;
        }
        taken_ += more;
    }
    bytes_ = needed;
    return true;
}

// Keeps a unit more than it needs: what comes and goes does not ask each time.
void GetBudget::Account::remove(std::uint64_t bytes) {
    bytes_ -= bytes;
    if (const std::uint64_t kept = bytes_ / kUnit * kUnit + kUnit; taken_ > kept) {
        budget_->give(taken_ - kept, origin_);
        taken_ = kept;
    }
}

std::uint64_t GetBudget::taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
}

bool GetBudget::fits(std::uint64_t bytes, const std::string& origin) const {
    if (taken_ + bytes <= limit_) {
        return true;
    }
    std::uint64_t own = bytes;
    std::uint64_t others = 0;
    for (const auto& [one, taken] : taken_by_) {
        if (one == origin) {
            own += taken;
        } else {
            others += std::min(taken, share_);
        }
    }
    return own <= share_ && others + own <= limit_;
}

bool GetBudget::take(std::uint64_t bytes, const std::string& origin) {
    const std::lock_guard lock(mutex_);
    if (!fits(bytes, origin)) {
        return false;
    }
    taken_by_[origin] += bytes;
    taken_ += bytes;
    return true;
}

void GetBudget::give(std::uint64_t bytes, const std::string& origin) {
    const std::lock_guard lock(mutex_);
    const auto found = taken_by_.find(origin);
    if (found == taken_by_.end()) {
        return;  // it has taken nothing
    }
    taken_ -= bytes;
    found->second -= bytes;
    if (found->second == 0) {
        taken_by_.erase(found);
    }
}

}  // namespace ucxstore

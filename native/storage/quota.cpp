#include "storage/quota.hpp"

#include "base/status.hpp"

namespace ucxstore {

bool Quota::try_take(std::uint64_t size) {
    std::uint64_t taken = taken_;
    do {
        if (size > limit_ - taken) {
            return false;
        }
    } while (!taken_.compare_exchange_weak(taken, taken + size));
    return true;
}

void Quota::refuse(std::uint64_t size) const {
    throw Error(ErrorKind::storage, "no room for " + std::to_string(size) + " bytes: values take " +
                                        std::to_string(taken_) + " of " + std::to_string(limit_) +
                                        " bytes of " + of_);
}

void Quota::check(std::uint64_t size) {
    if (size > limit_ - taken_) {
        reclaim();
        if (size > limit_ - taken_) {
            refuse(size);
        }
    }
    if (within_ != nullptr) {
        within_->check(size);
    }
}

void Quota::take(std::uint64_t size) {
    if (!try_take(size)) {
        reclaim();
        if (!try_take(size)) {
            refuse(size);
        }
    }
    if (within_ != nullptr) {
        try {
            within_->take(size);
        } catch (...) {
            taken_ -= size;
            throw;
        }
    }
}

std::shared_ptr<void> Quota::add_reclaim(Reclaim reclaim) {
    auto kept = std::make_shared<const Reclaim>(std::move(reclaim));
    add(kept);
    return std::const_pointer_cast<Reclaim>(kept);
}

void Quota::add(std::weak_ptr<const Reclaim> reclaim) {
    if (within_ != nullptr) {
        within_->add(reclaim);
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(reclaims_, [](const auto& one) { return one.expired(); });
    reclaims_.push_back(std::move(reclaim));
}

void Quota::reclaim() {
    std::vector<std::shared_ptr<const Reclaim>> reclaims;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& weak : reclaims_) {
            if (auto one = weak.lock()) {
                reclaims.push_back(std::move(one));
            }
        }
    }
    for (const auto& one : reclaims) {
        (*one)();
    }
}

void Quota::give(std::uint64_t size) {
    taken_ -= size;
    if (within_ != nullptr) {
        within_->give(size);
    }
}

}  // namespace ucxstore

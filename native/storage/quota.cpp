#include "storage/quota.hpp"

#include <algorithm>

namespace ucxstore::storage {
namespace {

// Of the limit of memory, for values that replace others: a sixteenth, and 1 GiB at the most.
constexpr std::uint64_t kReservePart = 16;
constexpr std::uint64_t kMostReserve = 1ull << 30;

// Of the limit, what readers may hold at the most.
constexpr std::uint64_t kReadersPart = 4;

}  // namespace

std::shared_ptr<Quota> Quota::of_memory(std::uint64_t limit, std::string hint) {
    if (limit == kNoLimit) {
        return std::make_shared<Quota>(limit);
    }
    const std::uint64_t reserve = std::clamp<std::uint64_t>(
        limit / kReservePart, std::min<std::uint64_t>(limit, 1), kMostReserve);
    return std::shared_ptr<Quota>(new Quota(limit, "memory", nullptr, reserve, std::move(hint)));
}

std::shared_ptr<Quota> Quota::memory_of(const std::shared_ptr<Quota>& quota) {
    std::shared_ptr<Quota> one = quota;
    while (one != nullptr && one->reserve_ == 0) {
        one = one->within_;
    }
    return one;
}

// What is counted in one of these and then in another is so in both for a moment. Whoever reads
// them in the order in which memory goes through them misses none: taken, idle, left to others.
std::uint64_t Quota::idle() const {
    const auto idle = static_cast<std::uint64_t>(std::max<std::int64_t>(idle_, 0));
    return idle + leftovers_->bytes();
}

std::uint64_t Quota::used() const {
    const std::uint64_t taken = taken_;
    return taken + idle();
}

std::uint64_t Quota::kept() const {
    const auto held = static_cast<std::uint64_t>(std::max<std::int64_t>(kept_, 0));
    return reserve_ + std::min(held, limit_ / kReadersPart);
}

// Where there is room, half of it: each value that is held may have to be there twice. Else half of
// what is kept for values that replace others.
std::uint64_t Quota::room_for_readers() const {
    const std::uint64_t free = limit_ - std::min(limit_, used() + reserve_);
    return std::min(limit_ / kReadersPart, std::max(reserve_, free) / 2);
}

// The reserve is of what values take; the limit itself, of what lies idle, too.
bool Quota::has_room(const Amount& amount, std::uint64_t taken, std::uint64_t idle) const {
    const std::uint64_t size = counted(amount);
    const auto fits = [size](std::uint64_t used, std::uint64_t limit) {
        return size <= limit && used <= limit - size;
    };
    return fits(taken, amount.replaces ? limit_ : limit_ - kept()) && fits(taken + idle, limit_);
}

std::uint64_t Quota::lacking(const Amount& amount) const {
    const std::uint64_t free = idle();
    const std::uint64_t all = taken_ + counted(amount);
    const std::uint64_t limit = amount.replaces ? limit_ : limit_ - kept();
    return std::max(all - std::min(all, limit), all + free - std::min(all + free, limit_));
}

bool Quota::try_take(const Amount& amount) {
    const std::uint64_t size = counted(amount);
    std::uint64_t taken = taken_;
    do {
        if (!has_room(amount, taken, idle())) {
            return false;
        }
    } while (!taken_.compare_exchange_weak(taken, taken + size));
    if (!has_room(amount, taken, idle())) {  // an arena has taken it meanwhile: see try_touch()
        taken_ -= size;
        return false;
    }
    return true;
}

void Quota::refuse(const Amount& amount) const {
    // Of a value that goes elsewhere, what is kept of it here.
    const std::uint64_t size = amount.value > 0 ? amount.value : counted(amount);
    std::string text = "no room for " + std::to_string(size) + " bytes: values take " +
                       std::to_string(taken_) + " of " + std::to_string(limit_) + " bytes of " +
                       of_;
    if (const std::uint64_t free = idle(); free > 0) {
        text += ", and " + std::to_string(free) + " lie free between them";
    }
    if (!amount.replaces && reserve_ > 0) {
        text += "; " + std::to_string(kept()) + " are kept for replacing values";
    }
    throw NoRoomError(text + hint_);
}

// Readers lose what they have pinned only where nothing else helps.
template <typename Fits>
bool Quota::fits_after_reclaim(const Amount& amount, Pressure pressure, Fits fits) {
    if (counted(amount) > limit_ - (amount.replaces ? 0 : reserve_)) {
        return false;  // nothing helps
    }
    reclaim(lacking(amount));
    bool done = fits();
    if (pressure == Pressure::gently) {
        return done;
    }
    while (!done && shed(counted(amount))) {
        done = fits();
    }
    if (!done) {
        reclaim(lacking(amount), true);
        done = fits();
    }
    return done;
}

void Quota::check(const Amount& amount, Counting counting, Pressure pressure) {
    const auto fits = [&] {
        const std::uint64_t taken = taken_;
        return has_room(amount, taken, counting == Counting::with_idle ? idle() : 0);
    };
    if (!fits() && !fits_after_reclaim(amount, pressure, fits)) {
        refuse(amount);
    }
    if (within_ != nullptr) {
        within_->check(amount, counting, pressure);
    }
}

void Quota::take(const Amount& amount, Pressure pressure) {
    const auto fits = [&] { return try_take(amount); };
    if (!fits() && !fits_after_reclaim(amount, pressure, fits)) {
        refuse(amount);
    }
    if (within_ != nullptr) {
        try {
            within_->take(amount, pressure);
        } catch (...) {
            taken_ -= counted(amount);
            throw;
        }
    }
}

void Quota::take_anyway(const Amount& amount) {
    taken_ += counted(amount);
    if (within_ != nullptr) {
        within_->take_anyway(amount);
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
    const base::Lock lock(mutex_);
    std::erase_if(reclaims_, [](const auto& one) { return one.expired(); });
    reclaims_.push_back(std::move(reclaim));
}

void Quota::reclaim(std::uint64_t bytes, bool needed) {
    std::vector<std::shared_ptr<const Reclaim>> reclaims;
    {
        const base::Lock lock(mutex_);
        for (const auto& weak : reclaims_) {
            if (auto one = weak.lock()) {
                reclaims.push_back(std::move(one));
            }
        }
    }
    for (const auto& one : reclaims) {
        (*one)(bytes, needed);
    }
}

std::shared_ptr<void> Quota::set_shed(Shed shed) {
    auto kept = std::make_shared<const Shed>(std::move(shed));
    const base::Lock lock(mutex_);
    shed_ = kept;
    return std::const_pointer_cast<Shed>(kept);
}

bool Quota::shed(std::uint64_t bytes) {
    std::shared_ptr<const Shed> shed;
    {
        const base::Lock lock(mutex_);
        shed = shed_.lock();
    }
    return shed != nullptr && (*shed)(bytes);
}

void Quota::give(const Amount& amount) {
    taken_ -= counted(amount);
    if (within_ != nullptr) {
        within_->give(amount);
    }
}

// All that is fresh, though `used` is not idle then: a value that is to come there takes it.
bool Quota::has_room(std::uint64_t fresh) const {
    return fresh <= limit_ - std::min(limit_, used() + kept_from_arenas_);
}

bool Quota::try_touch(std::uint64_t fresh, std::uint64_t used) {
    // First, so that nobody finds room in what lies idle no more.
    const std::uint64_t already = reused(fresh, used);
    taken_ += already;
    const auto more = static_cast<std::int64_t>(fresh) - static_cast<std::int64_t>(used);
    const auto fits = [&](std::int64_t before) {
        const std::uint64_t left = leftovers_->bytes();
        const auto after = static_cast<std::int64_t>(taken_ - already + fresh + left) + before;
        return fresh == 0 || after <= static_cast<std::int64_t>(limit_ - kept_from_arenas_);
    };
    std::int64_t idle = idle_;
    do {
        if (!fits(idle)) {
            taken_ -= already;
            return false;
        }
    } while (!idle_.compare_exchange_weak(idle, idle + more));
    if (!fits(idle)) {  // a value has taken it meanwhile: each looks at the other's once it is told
        idle_ -= more;
        taken_ -= already;
        return false;
    }
    return true;
}

}  // namespace ucxstore::storage

#include "local_client/held.hpp"

#include <algorithm>

namespace ucxstore::local_client {
namespace {

// The others are for reads, which need one each for a moment.
constexpr std::uint64_t kMostHolds = shared::kPins / 2;

// The server is told of changes that are a part of the limit, so that others keep to it, too; and
// of such that are worth looking for memory that has become free.
constexpr std::uint64_t kShareOfLimit = 16;
constexpr std::uint64_t kWorthTelling = 32ull << 20;

}  // namespace

HeldValues::HeldValues(std::shared_ptr<shared::Pins> pins,
                       std::shared_ptr<const shared::ReaderLimitView> reader_limit,
                       std::function<void()> tell)
    : pins_(std::move(pins)), reader_limit_(std::move(reader_limit)), tell_(std::move(tell)) {
    enlist();
}

HeldValues::~HeldValues() { strike_off(); }

// What this process holds is known here; what the others hold, as of when the server looked.
bool HeldValues::may_add(std::uint64_t bytes) const {
    const std::uint64_t all = reader_limit_->held();
    const std::uint64_t others = all - std::min(all, pins_->held());
    const std::uint64_t limit = reader_limit_->limit();
    return bytes_ + bytes <= limit && others <= limit - (bytes_ + bytes);
}

bool HeldValues::has_changed() {
    const std::uint64_t change = bytes_ > told_ ? bytes_ - told_ : told_ - bytes_;
    if (tell_ == nullptr ||
        change < std::min(std::max<std::uint64_t>(reader_limit_->limit() / kShareOfLimit, 1),
                          kWorthTelling)) {
        return false;
    }
    told_ = bytes_;
    return true;
}

std::optional<HeldValues::Hold> HeldValues::add(shared::Place place, std::uint64_t bytes) {
    std::function<void()> tell;
    {
        const base::Lock lock(mutex_);
        const auto found = blocks_.find(place);
        if (holds_ >= kMostHolds || (found == blocks_.end() && !may_add(bytes))) {
            return std::nullopt;
        }
        if (found == blocks_.end()) {
            blocks_.emplace(place, Block{bytes, 1});
            bytes_ += bytes;
        } else {
            ++found->second.holds;
        }
        ++holds_;
        if (has_changed()) {
            tell = tell_;
        }
    }
    if (tell) {
        tell();
    }
    return Hold(shared_from_this(), place);
}

void HeldValues::remove(shared::Place place) {
    std::function<void()> tell;
    {
        const base::Lock lock(mutex_);
        const auto found = blocks_.find(place);
        --holds_;
        if (--found->second.holds == 0) {
            bytes_ -= found->second.bytes;
            blocks_.erase(found);
        }
        if (has_changed()) {
            tell = tell_;
        }
    }
    if (tell) {
        tell();
    }
}

}  // namespace ucxstore::local_client

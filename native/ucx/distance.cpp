#include "ucx/distance.hpp"

#include <algorithm>

namespace ucxstore::ucx {
namespace {

// Smaller copies measure the clock rather than the distance.
constexpr std::uint64_t kLeastBytes = 16 * 1024;

// The fastest of some copies counts, as interrupts and the like slow others.
constexpr int kTries = 8;
constexpr double kFarBelow = 5;  // bytes a nanosecond; near ones were at 10 to 20, far ones at 2.5

// Copies until it is measured again: 60 MB in fragments of 60 KiB. So 1 % of the copies measure.
constexpr int kFarFor = 1024;

}  // namespace

void Distance::note(std::uint64_t bytes, std::chrono::nanoseconds took) {
    if (bytes < kLeastBytes) {
        return;
    }
    if (far_for_ > 0) {
        --far_for_;
        return;
    }
    best_ = std::max(best_, static_cast<double>(bytes) /
                                static_cast<double>(std::max<std::int64_t>(took.count(), 1)));
    if (++tried_ < kTries) {
        return;
    }
    far_for_ = best_ < kFarBelow ? kFarFor : 0;
    tried_ = 0;
    best_ = 0;
}

}  // namespace ucxstore::ucx

#include "ucx/distance.hpp"

#include <algorithm>

namespace ucxstore {
namespace {

// Smaller ones tell more about the clock.
constexpr std::uint64_t kLeastBytes = 16 * 1024;

// The best of some copies, as others are held up by interrupts and the like.
constexpr int kTries = 8;
constexpr double kFarBelow = 5;  // bytes a nanosecond; near ones were at 10 to 20, far ones at 2.5

// So long nothing else is tried: 60 MB in fragments of 60 KiB, of which the tries are a hundredth.
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

}  // namespace ucxstore

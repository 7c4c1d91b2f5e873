// The clock of deadlines.
#pragma once

#include <chrono>

namespace ucxstore::base {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

}  // namespace ucxstore::base

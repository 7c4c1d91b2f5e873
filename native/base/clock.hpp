// The clock of deadlines, and that of work.
#pragma once

#include <time.h>

#include <chrono>

namespace ucxstore::base {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// How long the calling thread has had a processor. Another thread that takes that from it for some
// milliseconds is not what it was working for.
inline Clock::duration worked() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace ucxstore::base

#include "crowding.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// A yield on a core of one's own takes well under a microsecond; interrupts explain a late one now
// and then, but not several of them.
constexpr auto kLate = 8us;
constexpr int kLateRests = 4;

// A machine that is simply full must not be made to migrate all the time.
constexpr auto kInterval = 1ms;

void leave_core() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        return;
    }
    cpu_set_t others = allowed;
    CPU_CLR(static_cast<std::size_t>(sched_getcpu()), &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0) {
        sched_setaffinity(0, sizeof(allowed), &allowed);
    }
}

}  // namespace

bool Crowding::chance() {
    if (random_ == 0) {
        random_ = static_cast<std::uint32_t>(syscall(SYS_gettid)) * 2654435761u | 1u;
    }
    random_ ^= random_ << 13;
    random_ ^= random_ >> 17;
    random_ ^= random_ << 5;
    return random_ & 1;
}

void Crowding::rested(Clock::time_point now, Clock::duration took, Clock::duration meant) {
    if (took < meant + kLate) {
        late_ = 0;
        return;
    }
    if (++late_ < kLateRests || now < next_) {
        return;
    }
    late_ = 0;
    next_ = now + kInterval;
    if (chance()) {  // both may notice: where both went, they would meet again
        leave_core();
    }
}

}  // namespace ucxstore

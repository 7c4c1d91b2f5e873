#include "ucx/crowding.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <utility>

namespace ucxstore::ucx {
namespace {

using namespace std::chrono_literals;

// A yield on a core of one's own takes well under a microsecond; interrupts explain a late one now
// and then, but not several of them.
constexpr auto kLate = 8us;
constexpr int kLateRests = 4;

// The least time between two looks at /proc/stat, whose clocks tick every 10 ms.
constexpr auto kLookAfter = 60ms;
constexpr auto kForget = 1s;
constexpr double kIdleShare = 0.8;

// Clock ticks that each processor has been idle (man 5 proc_stat); a number without a processor is
// 0. Empty where memory runs out, since a progress thread has nobody to throw to.
std::vector<std::uint64_t> idle_ticks() try {
    std::vector<std::uint64_t> ticks;
    std::ifstream stat("/proc/stat");
    for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
        std::istringstream fields(line.substr(3));
        std::size_t number = 0;
        std::uint64_t user = 0, nice = 0, system = 0, idle = 0;
        if (line[3] != ' ' && fields >> number >> user >> nice >> system >> idle &&
            number < CPU_SETSIZE) {
            ticks.resize(std::max(ticks.size(), number + 1));
            ticks[number] = idle;
        }
    }
    return ticks;
} catch (const std::bad_alloc&) {
    return {};
}

// Moves this thread to one of `processors`, without binding it there.
void move_to(const cpu_set_t& processors) {
    cpu_set_t allowed;
    cpu_set_t target;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    CPU_AND(&target, &allowed, &processors);
    if (CPU_COUNT(&target) > 0 && sched_setaffinity(0, sizeof(target), &target) == 0) {
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
    if (++late_ < kLateRests || now - looked_ < kLookAfter) {
        return;
    }
    late_ = 0;
    const auto before = std::exchange(idle_, idle_ticks());
    const auto since = std::exchange(looked_, now);
    if (now - since > kForget) {
        return;  // the first look, or the one before was too long ago
    }
    const double ticks = std::chrono::duration<double>(now - since).count() *
                         static_cast<double>(sysconf(_SC_CLK_TCK));
    cpu_set_t idle;
    CPU_ZERO(&idle);
    for (std::size_t cpu = 0; cpu < std::min(before.size(), idle_.size()); ++cpu) {
        if (static_cast<double>(idle_[cpu] - before[cpu]) > ticks * kIdleShare) {
            CPU_SET(cpu, &idle);
        }
    }
    if (CPU_COUNT(&idle) > 0 && chance()) {  // both threads may look, and must not move together
        move_to(idle);
    }
}

}  // namespace ucxstore::ucx

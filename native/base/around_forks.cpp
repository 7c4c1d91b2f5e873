#include "base/around_forks.hpp"

#include <algorithm>
#include <mutex>
#include <ranges>
#include <vector>

#include "base/global.hpp"
#include "base/mutex.hpp"
#include "base/steps.hpp"

namespace ucxstore {
namespace {

struct EnlistedForks {
    Mutex mutex;
    std::vector<AroundForks*> in_turn;
};

constinit Global<EnlistedForks> forks_of_process;

// Never destroyed: threads may fork while the process exits.
EnlistedForks& enlisted_forks() {
    return *forks_of_process.get([] { return new EnlistedForks; });
}

}  // namespace

void ForksOfProcess::before() {
    enlisted_forks().mutex.lock();
    for (AroundForks* const each : enlisted_forks().in_turn) {
        each->before_fork();
    }
}

void ForksOfProcess::parent() {
    for (AroundForks* const each : std::views::reverse(enlisted_forks().in_turn)) {
        each->in_parent();
    }
    enlisted_forks().mutex.unlock();
}

void ForksOfProcess::child() {
    for (AroundForks* const each : std::views::reverse(enlisted_forks().in_turn)) {
        each->in_child();
    }
    enlisted_forks().mutex.unlock();
}

void AroundForks::enlist() {
    step();
    const std::lock_guard lock(enlisted_forks().mutex);
    enlisted_forks().in_turn.insert(enlisted_forks().in_turn.begin(), this);
    step();
}

void AroundForks::enlist_last() {
    const std::lock_guard lock(enlisted_forks().mutex);
    enlisted_forks().in_turn.push_back(this);
}

void AroundForks::strike_off() {
    const std::lock_guard lock(enlisted_forks().mutex);
    std::erase(enlisted_forks().in_turn, this);
}

}  // namespace ucxstore

#include "base/around_forks.hpp"

#include <algorithm>
#include <ranges>
#include <vector>

#include "base/global.hpp"
#include "base/mutex.hpp"
#include "base/steps.hpp"

namespace ucxstore::base {
namespace {

struct EnlistedForks {
    Mutex mutex;
    std::vector<AroundForks*> in_turn GUARDED_BY(mutex);
};

constinit Global<EnlistedForks> forks_of_process;

// Never destroyed: threads may fork while the process exits.
EnlistedForks& enlisted_forks() {
    return *forks_of_process.get([] { return new EnlistedForks; });
}

}  // namespace

// Held from before the fork to after it.
void ForksOfProcess::before() ACQUIRE(enlisted_forks().mutex) {
    enlisted_forks().mutex.lock();
    for (AroundForks* const each : enlisted_forks().in_turn) {
        each->before_fork();
    }
}

void ForksOfProcess::parent() RELEASE(enlisted_forks().mutex) {
    for (AroundForks* const each : std::views::reverse(enlisted_forks().in_turn)) {
        each->in_parent();
    }
    enlisted_forks().mutex.unlock();
}

void ForksOfProcess::child() RELEASE(enlisted_forks().mutex) {
    for (AroundForks* const each : std::views::reverse(enlisted_forks().in_turn)) {
        each->in_child();
    }
    enlisted_forks().mutex.unlock();
}

void AroundForks::enlist() {
    step();
    const Lock lock(enlisted_forks().mutex);
    enlisted_forks().in_turn.insert(enlisted_forks().in_turn.begin(), this);
    step();
}

void AroundForks::enlist_last() {
    const Lock lock(enlisted_forks().mutex);
    enlisted_forks().in_turn.push_back(this);
}

void AroundForks::strike_off() {
    const Lock lock(enlisted_forks().mutex);
    std::erase(enlisted_forks().in_turn, this);
}

}  // namespace ucxstore::base

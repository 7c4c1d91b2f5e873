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

struct Enlisted {
    Mutex mutex;
    std::vector<AroundForks*> in_turn;
};

constinit Global<Enlisted> one;

// Never destroyed: threads may fork while the process exits.
Enlisted& enlisted() {
    return *one.get([] { return new Enlisted; });
}

}  // namespace

void ForksOfProcess::before() {
    enlisted().mutex.lock();
    for (AroundForks* const each : enlisted().in_turn) {
        each->before_fork();
    }
}

void ForksOfProcess::parent() {
    for (AroundForks* const each : std::views::reverse(enlisted().in_turn)) {
        each->in_parent();
    }
    enlisted().mutex.unlock();
}

void ForksOfProcess::child() {
    for (AroundForks* const each : std::views::reverse(enlisted().in_turn)) {
        each->in_child();
    }
    enlisted().mutex.unlock();
}

void AroundForks::enlist() {
    step();
    const std::lock_guard lock(enlisted().mutex);
    enlisted().in_turn.insert(enlisted().in_turn.begin(), this);
    step();
}

void AroundForks::enlist_last() {
    const std::lock_guard lock(enlisted().mutex);
    enlisted().in_turn.push_back(this);
}

void AroundForks::strike_off() {
    const std::lock_guard lock(enlisted().mutex);
    std::erase(enlisted().in_turn, this);
}

}  // namespace ucxstore

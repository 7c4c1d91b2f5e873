#include "base/around_forks.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace ucxstore {

// Never destroyed: threads may fork while the process exits.
struct ForksOfProcess {
    std::mutex mutex;
    std::vector<AroundForks*> enlisted;

    static ForksOfProcess& instance() {
        static auto* const one = new ForksOfProcess;
        return *one;
    }
    static void before() {
        instance().mutex.lock();
        for (AroundForks* const each : instance().enlisted) {
            each->before_fork();
        }
    }
    static void parent() {
        for (AroundForks* const each : instance().enlisted) {
            each->in_parent();
        }
        instance().mutex.unlock();
    }
    static void child() {
        for (AroundForks* const each : instance().enlisted) {
            each->in_child();
        }
        instance().mutex.unlock();
    }
};

void AroundForks::enlist() {
    static const int registered =
        pthread_atfork(ForksOfProcess::before, ForksOfProcess::parent, ForksOfProcess::child);
    static_cast<void>(registered);
    const std::lock_guard lock(ForksOfProcess::instance().mutex);
    ForksOfProcess::instance().enlisted.push_back(this);
}

void AroundForks::strike_off() {
    const std::lock_guard lock(ForksOfProcess::instance().mutex);
    std::erase(ForksOfProcess::instance().enlisted, this);
}

}  // namespace ucxstore

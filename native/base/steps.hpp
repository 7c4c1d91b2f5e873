// Steps of what processes do to memory that they share, for tests that end a process between any
// two of them.
#pragma once

#include <atomic>

namespace ucxstore::base {

// Called at each step, where a test has set it.
inline std::atomic<void (*)()> on_step = nullptr;

inline void step() {
    if (void (*const call)() = on_step.load(std::memory_order_relaxed); call != nullptr)
        [[unlikely]] {
        call();
    }
}

}  // namespace ucxstore::base

// Move a thread off a core that it shares with the thread that it waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace ucxstore::ucx {

// Two threads that wait for one another, and yield meanwhile, look idle to the scheduler, which may
// leave both on one core for seconds while another is free: a transfer then takes the sum of their
// work, not the larger part (measured: 12 ms for 100 MB instead of 7.5). It shows in rests that
// take longer than they should. The cure is to move once to a core that has been idle meanwhile, by
// the thread's affinity, which is put back at once. Where no core is idle the rests are late
// because the machine is full, and moving would only make it worse.
class Crowding {
  public:
    using Clock = std::chrono::steady_clock;

    // The thread has yielded or slept until `now`. It took `took`, and was meant to take `meant`.
    void rested(Clock::time_point now, Clock::duration took, Clock::duration meant);

  private:
    bool chance();

    int late_ = 0;
    Clock::time_point looked_{};
    std::vector<std::uint64_t> idle_;  // clock ticks, by processor, when last looked at
    std::uint32_t random_ = 0;
};

}  // namespace ucxstore::ucx

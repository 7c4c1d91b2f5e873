// The distance to the core that reads what this one writes, measured by copies.
#pragma once

#include <chrono>
#include <cstdint>

namespace ucxstore::ucx {

// What goes over shared memory is written to lines that the reader has just had in its cache. If
// its core shares a cache with ours, the lines come fast, and the reader finds them in that cache;
// if not, each must be fetched from the other's cache first, which is slower than memory is
// (measured, 100 MB in one chunk: near 5.7 ms, and 8.3 past the caches; far 42 ms, and 6.2 past the
// caches). Cores do not stay where they are: threads move, and so do a virtual machine's
// processors. So it is measured as the copies go on, and tried again now and then.
class Distance {
  public:
    bool is_far() const { return far_for_ > 0; }

    // Notes how long a copy of `bytes` into shared memory took.
    void note(std::uint64_t bytes, std::chrono::nanoseconds took);

  private:
    int tried_ = 0;
    double best_ = 0;  // bytes a nanosecond, of those tried
    int far_for_ = 0;  // copies more
};

}  // namespace ucxstore::ucx

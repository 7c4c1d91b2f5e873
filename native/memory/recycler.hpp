// Recycled memory: large mappings, kept for a while after use. The kernel clears every page that it
// hands out, which costs as much as filling it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>

#include "base/around_forks.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"

namespace ucxstore::memory {

// An anonymous mapping that begins on a huge page. `present`: whether its pages are memory already,
// before anybody has written to them.
struct Mapping {
    std::byte* data;
    std::uint64_t capacity;
    bool present;
};

// How long memory is kept. What it has more than is needed lies idle for as long.
enum class Kept { briefly, for_long };

// A forked child has what its parent keeps, and its own share of it.
class Recycler final : private base::AroundForks {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;

    // The recycler of this process. It keeps UCXSTORE_RECYCLE_BYTES at the most (256 MiB by
    // default; 0 keeps nothing), and nothing for longer than a few seconds.
    static Recycler& instance();

    explicit Recycler(std::uint64_t limit);
    ~Recycler() override;

    // Memory of at least `size` bytes: kept, or new. Before it takes new memory, it unmaps as much
    // of what it keeps, so that keeping does not raise the process's peak.
    Mapping take(std::uint64_t size, Kept kept = Kept::briefly);
    void give(const Mapping& mapping);

    // Unmaps what was kept for too long. To be called when timer() can be read.
    void trim();
    int timer() const { return timer_.get(); }

    std::uint64_t kept() const;
    std::uint64_t limit() const { return limit_; }

  private:
    struct Idle {
        Mapping mapping;
        TimePoint since;
    };
    void before_fork() noexcept override ACQUIRE(mutex_) { mutex_.lock(); }
    void in_parent() noexcept override RELEASE(mutex_) { mutex_.unlock(); }
    void in_child() noexcept override RELEASE(mutex_) { mutex_.unlock(); }
    void set_timer() REQUIRES(mutex_);
    void drop(std::list<Idle>::iterator entry, std::list<Idle>& dropped) REQUIRES(mutex_);

    const std::uint64_t limit_;
    const base::Fd timer_;
    mutable base::Mutex mutex_;
    std::list<Idle> kept_ GUARDED_BY(mutex_);  // the oldest first
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ucxstore::memory

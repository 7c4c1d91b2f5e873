// Makes huge pages of arenas, in the background. Whoever maps a part of an arena then has few
// faults in place of many: with small pages these cost as much as a copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "base/mutex.hpp"
#include "shared/arenas.hpp"

namespace ucxstore::shared {

// Called from any thread. Has a thread of its own from the first value on.
class HugePageMaker {
  public:
    // Values that are replaced within `settles` are left as they are.
    explicit HugePageMaker(std::chrono::milliseconds settles);
    HugePageMaker(const HugePageMaker&) = delete;
    HugePageMaker& operator=(const HugePageMaker&) = delete;
    ~HugePageMaker();

    // A large value lies in this block, and does not change any more. It is there as long as
    // `alive` is. A piece that is only partly its own is left as it is.
    void add(const Arena& arena, const Block& block, std::weak_ptr<void> alive);

  private:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Value {
        std::shared_ptr<Arena::Reference> arena;
        std::uint64_t offset;
        std::uint64_t bytes;
        std::weak_ptr<void> alive;
        TimePoint due;
    };

    void run();
    void collapse(const Value& value);
    // False where there is no more to be done.
    bool collapse(const Arena& arena, std::uint64_t at);
    bool stopped();

    const std::chrono::milliseconds settles_;
    const int pid_;
    base::Mutex mutex_;
    base::Condition changed_;
    std::deque<Value> values_ GUARDED_BY(mutex_);
    bool stop_ GUARDED_BY(mutex_) = false;
    int refused_ GUARDED_BY(mutex_) = 0;  // times in a row: a kernel that cannot
    std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace ucxstore::shared

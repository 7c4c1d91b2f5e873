// Scratch spaces: values in memory, each space with a quota. A space ends when its owner ends it,
// or has not renewed it for the space's time-out, or for a while after his session has gone.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/counters.hpp"
#include "base/mutex.hpp"
#include "storage/memory.hpp"

namespace ucxstore::storage {

class Spaces : public std::enable_shared_from_this<Spaces> {
  public:
    using Clock = std::chrono::steady_clock;
    using TimePoint = Clock::time_point;
    using Timeout = std::chrono::milliseconds;

    // Of so many spaces at a time, clients of this host may see the values: each takes descriptors.
    static constexpr std::size_t kMaxVisible = 256;
    static constexpr Timeout kMaxTimeout = std::chrono::hours(24);
    // How long a space stays whose owner has no session any more. Owners renew theirs more often.
    static constexpr Timeout kOrphaned = std::chrono::minutes(5);

    // Who has begun a space, or renewed it last.
    struct Owner {
        std::weak_ptr<const void> session;
        std::shared_ptr<const void> share;  // of his account, until the space ends
    };

    // All spaces take their bytes from `room`. `visible`: each keeps its values on a shelf of its
    // own, so that clients of this host see those of the spaces whose names they know.
    explicit Spaces(std::shared_ptr<Quota> room, bool visible = false)
        : room_(std::move(room)), visible_(visible) {}
    // They take them from the limit of this memory, and from another one of their own.
    Spaces(const MemoryStorage& memory, bool visible, std::optional<std::uint64_t> limit);
    Spaces(const Spaces&) = delete;
    Spaces& operator=(const Spaces&) = delete;
    ~Spaces();

    // Throws Error(storage) where there is a space of that name, or the time-out is out of bounds.
    // How many there may be is the server's account's to say. The name says whether what has been
    // read once is freed: protocol::kReadOnce.
    void begin(const std::string& name, std::uint64_t quota, Timeout timeout,
               TimePoint now = Clock::now(), Owner owner = {});
    // Renews the lease of its owner, by this session. Throws Error(scratch_ended) where there is no
    // such space.
    void renew(const std::string& name, TimePoint now = Clock::now(),
               std::weak_ptr<const void> session = {});
    // Ends the space: nobody finds its values any more. A thread frees them and then calls `freed`.
    // Where there is no such space, `freed` is called at once.
    void end(const std::string& name, std::function<void()> freed);
    void end_all();
    // Ends the spaces whose leases have run out.
    void expire(TimePoint now);

    // The storage of its values. Throws Error(scratch_ended) where there is no such space.
    std::shared_ptr<Storage> find(std::string_view name) const;

    // Bytes of values in all of them.
    std::vector<base::SpaceCounts> counts(TimePoint now = Clock::now()) const;
    // Of the shelves of all of them; what was seen of those that have ended, too.
    base::ShelfCounts shelf_counts() const;
    // As Shelf::forget_gone(), of all of them.
    void forget_gone() const;

  private:
    struct Space {
        std::shared_ptr<MemoryStorage> values;
        Timeout timeout;
        TimePoint begun;
        TimePoint due;
        Owner owner;
        TimePoint owner_gone = TimePoint::max();  // when that was seen
    };
    struct Ended {
        MemoryStorage::Catalog values;
        std::shared_ptr<shared::Shelf> shelf;  // nullptr where it had none
        std::function<void()> freed;
    };
    using All = std::map<std::string, Space, std::less<>>;

    All::iterator close(All::iterator at, std::function<void()> freed) REQUIRES(mutex_);
    TimePoint close_overdue(TimePoint now) REQUIRES(mutex_);
    std::shared_ptr<shared::Shelf> make_shelf(std::uint64_t quota) const REQUIRES(mutex_);
    // What the thread does.
    void run();
    // Both let go of the lock meanwhile.
    void keep_house(base::UniqueLock<base::Mutex>& lock, TimePoint& next_sweep,
                    TimePoint& next_trim) REQUIRES(mutex_) UNCHECKED_LOCKS;
    void trim_shelves(base::UniqueLock<base::Mutex>& lock) REQUIRES(mutex_) UNCHECKED_LOCKS;
    static void free(Ended& one) noexcept;

    const std::shared_ptr<Quota> room_;
    const bool visible_;
    mutable base::Mutex mutex_;
    base::Condition changed_;
    All spaces_ GUARDED_BY(mutex_);
    std::vector<Ended> ended_ GUARDED_BY(mutex_);  // still to be freed
    // Of spaces that have ended, while somebody has some of their values pinned.
    std::vector<std::shared_ptr<shared::Shelf>> pinned_ GUARDED_BY(mutex_);
    base::ShelfCounts seen_before_ GUARDED_BY(mutex_);  // of spaces that have ended
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // started with the first space
};

}  // namespace ucxstore::storage

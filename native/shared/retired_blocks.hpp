// Blocks that no key has any more: freed once no reader has them pinned.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "shared/arenas.hpp"
#include "shared/pins.hpp"
#include "shared/reader_limit.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::shared {

// Called from any thread.
class RetiredBlocks {
  public:
    // Blocks, and bytes of them, that may wait until readers are asked. Few bytes where there are
    // few readers: to look at the pins of each costs as much as to write some of a value.
    static constexpr std::size_t kBlocks = 256;
    static constexpr std::uint64_t kBytes = 32ull << 20;
    static constexpr std::uint64_t kBytesPerReader = 256ull << 10;
    // To look at pins that somebody may fill with anything takes this part of the time at the most,
    // unless it takes less than that, and there is no room. Who lacks room may use what has not
    // been used before, so much at the most: whoever has just let go of a value can write another.
    static constexpr int kPart = 10;
    static constexpr std::chrono::microseconds kShort{200};
    static constexpr std::chrono::milliseconds kSaved{10};
    // A reader may find that what it has just pinned is no block any more. One with more such pins
    // than a table has room for writes nonsense, and each look at that takes long: it loses all
    // that it has pinned.
    static constexpr std::size_t kMostOfNothing = kPins;

    // `reader_limit`: where readers are told what all of them hold, and may: `most_held` at the
    // most, and as much as `bound` has room for, if there is one. Both may be nullptr.
    explicit RetiredBlocks(Arenas& arenas, ReaderLimit* reader_limit = nullptr,
                           std::uint64_t most_held = ReaderLimit::kNoLimit,
                           std::shared_ptr<ArenaBound> bound = nullptr);
    RetiredBlocks(const RetiredBlocks&) = delete;
    RetiredBlocks& operator=(const RetiredBlocks&) = delete;
    ~RetiredBlocks();

    // What is pinned in this table counts from now on, until its reader has gone.
    void add(std::shared_ptr<PinTable> table);

    // From now on the readers find nothing; what they have pinned stays.
    void end();

    // The index has not had the block since before this call. It is freed now, or by a later
    // sweep(). `keeps` goes with it.
    void retire(const Block& block, std::shared_ptr<void> keeps = nullptr);
    // Frees what nobody has pinned, and tells how much is pinned. `needed`: there is no room, also
    // after a sweep. Then readers lose what they have pinned whose origin has more than its share
    // of what waits, where that frees anything.
    void sweep(bool needed = false);
    // The same on a thread of its own, once it is time for that, as somebody says that much has
    // changed.
    void sweep_soon();
    // The same for who lacks so many bytes. Looks that take long are only made as often as for
    // others, unless that much waits that none has seen: whoever is refused would ask for one each
    // time.
    void make_room(std::uint64_t bytes, bool needed);
    // Whether anything is pinned in this table.
    bool pins_any(const PinTable& table) const;
    // Blocks that readers have pinned now, as far as that is looked at.
    std::unordered_set<Place> pinned() const;

    // Drops the tables of readers that have gone, and no more than that.
    void forget_gone();

    // Bytes that wait.
    std::uint64_t waiting() const;
    // What readers have read, also those that have gone.
    base::SeenCounts seen() const;
    // How often readers say that they have read a block since the last call.
    unsigned take_uses(Place place) const;

  private:
    // Calls visit(place, bytes) for each pin of a table, with the bytes of the block that begins
    // there; 0 where none does. False where it has more pinned than is looked at.
    template <typename Visit>
    bool visit_pins(const PinTable& table, const Visit& visit) const;
    struct Retired {
        Block block;
        std::shared_ptr<void> keeps;
    };
    using Blocks = std::list<Retired>;
    using Tables = std::vector<std::shared_ptr<PinTable>>;
    // What the readers of one origin have pinned; each block counts once.
    struct Share {
        std::uint64_t held = 0;
        std::uint64_t waiting = 0;  // of it
        std::uint64_t allowed = 0;
    };
    struct Look;

    std::uint64_t allowed() const;
    // What there is of the time for looks.
    base::Clock::duration saved(base::TimePoint now) const REQUIRES(mutex_) {
        return std::min<base::Clock::duration>(kSaved, saved_ + (now - looked_) / kPart);
    }
    Tables tables() const;
    void sweep_when_due();
    void look_and_free(bool needed) REQUIRES(sweeping_);
    void find_unpinned(Blocks& retired, Blocks& freed, bool needed) REQUIRES(sweeping_);
    Look look(const Blocks& retired) REQUIRES(sweeping_);
    void look_at(const std::shared_ptr<PinTable>& table, Look& look) const;
    static bool revoke(Look& look);

    Arenas& arenas_;
    ReaderLimit* const reader_limit_;
    const std::uint64_t most_held_;
    const std::shared_ptr<ArenaBound> bound_;

    base::Mutex sweeping_ ACQUIRED_BEFORE(mutex_);
    std::map<std::string, std::uint64_t> shares_
        GUARDED_BY(sweeping_);                     // of origins: what each may have
    std::int64_t kept_ GUARDED_BY(sweeping_) = 0;  // as told to bound_
    std::atomic<base::TimePoint> next_look_{};
    std::atomic<bool> wanted_ = false;  // a sweep that has not begun

    mutable base::Mutex mutex_;
    Tables tables_ GUARDED_BY(mutex_);
    base::SeenCounts seen_before_ GUARDED_BY(mutex_);  // by those that have gone
    std::uint64_t told_ GUARDED_BY(mutex_) =
        0;  // the most that readers were told since the last look
    Blocks retired_ GUARDED_BY(mutex_);
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t seen_bytes_ GUARDED_BY(mutex_) =
        0;  // of these, that the last look has found pinned
    base::Clock::duration look_took_ GUARDED_BY(mutex_){0};  // the last one
    // Of the time for looks, at the end of the last one.
    base::Clock::duration saved_ GUARDED_BY(mutex_) = kSaved;
    base::TimePoint looked_ GUARDED_BY(mutex_){};  // when that was
    base::Condition changed_;
    bool ending_ GUARDED_BY(mutex_) = false;
    // Where the next sweep is due: what is pinned for long must not have each block ask anew.
    std::size_t next_blocks_ GUARDED_BY(mutex_) = 0;
    std::uint64_t next_bytes_ GUARDED_BY(mutex_) = 0;

    const pid_t pid_ = getpid();
    threads::WorkerPool sweeper_{1, 0, "ucxstore-pins"};
};

}  // namespace ucxstore::shared

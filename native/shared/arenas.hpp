// Memory for values that other processes of this host may map. An arena is a file without a name.
// Only this process can write to it, whoever has its descriptor. Values lie in blocks: of a size
// class where they are small, of whole pages where they are large.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"
#include "shared/extents.hpp"
#include "shared/leftovers.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::shared {

// One file, mapped here for as long as this lives. Its size never changes, so that nobody who has
// it mapped is hit by SIGBUS.
class Arena {
  public:
    // Throws Error(memory).
    Arena(std::uint32_t number, std::uint64_t bytes);
    // Takes a file over that is_sealed() (sealed.hpp), of so many bytes, and leaves it to the
    // reclaimer in the end. Throws Error(memory).
    Arena(std::uint32_t number, base::Fd sealed, std::uint64_t bytes,
          std::shared_ptr<threads::Reclaimer> reclaimer);
    // Whether all bytes of such a file are there.
    bool is_whole() const;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    std::uint32_t number() const { return number_; }
    std::byte* data() const { return data_; }
    std::uint64_t size() const { return size_; }
    // Which pieces of it, of the size of a huge page, are one. Once a piece is, it stays so,
    // whatever is put there.
    bool is_huge(std::uint64_t piece) const;
    void set_huge(std::uint64_t piece) const;

    int descriptor() const { return readable_.get(); }
    // For another process: it cannot be mapped for writing, nor opened anew for that. None where
    // there is no descriptor left.
    base::Fd open_for_reader() const;
    // Whether no other process has it open or mapped, as far as the kernel tells. Not of one that
    // was taken over.
    bool is_alone() const;
    // So many bytes of it count as left over from now on, until nobody has it: who drops it may not
    // be the last in this process.
    void leave(Leftovers& to, std::uint64_t bytes) const { to.add(readable_.get(), bytes); }

    // Whoever has one finds the arena for as long as it is there, and does not keep it: the arena's
    // end waits until nobody uses it.
    class Reference {
      public:
        explicit Reference(const Arena& arena) : arena_(&arena) {}
        // False where the arena is gone.
        template <typename Use>
        bool use(Use&& what) {
            const base::Lock lock(mutex_);
            if (arena_ != nullptr) {
                what(*arena_);
            }
            return arena_ != nullptr;
        }
        void clear() {
            const base::Lock lock(mutex_);
            arena_ = nullptr;
        }

      private:
        base::Mutex mutex_;
        const Arena* arena_ GUARDED_BY(mutex_);
    };
    const std::shared_ptr<Reference>& reference() const { return reference_; }

  private:
    const std::uint32_t number_;
    const std::uint64_t size_;
    const std::shared_ptr<threads::Reclaimer> reclaimer_;  // of one that was taken over
    const int pid_;
    base::Fd readable_;
    std::byte* data_ = nullptr;
    const std::unique_ptr<std::atomic<bool>[]> huge_;  // for each piece
    const std::shared_ptr<Reference> reference_ = std::make_shared<Reference>(*this);
};

// Where a value may lie. `bytes` is what the block has room for; `reused` are those of them that a
// bound of the arenas counts for the block, as they were memory before it.
struct Block {
    std::uint32_t arena = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::byte* data = nullptr;
    std::uint64_t reused = 0;
};

// What bounds the memory of arenas, together with other memory.
class ArenaBound {
  public:
    virtual ~ArenaBound() = default;
    // Whether blocks may take so many bytes of memory that no block has had.
    virtual bool has_room(std::uint64_t fresh) const = 0;
    // The same, and takes them, for a block of `used` bytes: those lie idle no more. As many as are
    // not fresh are memory already, and count from now on until give_reused(). The others count as
    // what the value takes.
    virtual bool try_touch(std::uint64_t fresh, std::uint64_t used) = 0;
    static std::uint64_t reused(std::uint64_t fresh, std::uint64_t used) {
        return used - std::min(used, fresh);
    }
    virtual void give_reused(std::uint64_t bytes) = 0;
    // So many bytes more, or less, that blocks had and that none has now.
    virtual void add_idle(std::int64_t bytes) = 0;
    // What arenas had that are gone, while others keep their memory.
    virtual const std::shared_ptr<Leftovers>& leftovers() const = 0;

    // So many bytes all readers together may hold: as many as can be replaced meanwhile.
    virtual std::uint64_t room_for_readers() const = 0;
    // So many bytes more, or less, that they hold, and whose replacements are to have room.
    virtual void keep_for_readers(std::int64_t bytes) = 0;
};

// Called from any thread.
class Arenas {
  public:
    // Blocks of at least so many bytes begin on a multiple of it in their arena, so that they can
    // be of huge pages, and be mapped as such.
    static constexpr std::uint64_t kHugePage = 2ull << 20;
    static constexpr std::uint64_t kPage = 4096;
    // Above it, a block is of whole pages.
    static constexpr std::uint64_t kMaxSmall = 16ull << 10;
    static constexpr std::uint64_t kSlabBytes = 256ull << 10;
    // Of the first arena. Later ones are larger, so that their number stays small.
    static constexpr std::uint64_t kFirstBytes = 64ull << 20;
    static constexpr std::uint64_t kMostBytes = 1ull << 30;
    static constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

    // How long an arena is kept that has become empty: the kernel clears every page of a new one,
    // which costs as much as filling it. One that others have mapped is kept for longer, and used
    // again: its memory would stay, and serve nobody.
    static constexpr std::chrono::seconds kKeepFor{5};

    // `on_drop` is told the number of each arena that is to be given back to the system, for
    // readers to unmap it. It runs under a lock: it must not call back.
    using OnDrop = std::function<void(std::uint32_t)>;
    // `most_bytes`: so many bytes of all arenas may have been in blocks, now or before: what a
    // block once had stays this process's memory until its arena goes. Empty arenas of at most
    // `keep_bytes` together are kept. `bound`, which may be nullptr, bounds what blocks have had,
    // too. Throws Error(resource).
    explicit Arenas(OnDrop on_drop = nullptr, std::uint64_t first_bytes = kFirstBytes,
                    std::uint64_t most_bytes = kAnyBytes, std::uint64_t keep_bytes = 0,
                    std::shared_ptr<ArenaBound> bound = nullptr);
    Arenas(const Arenas&) = delete;
    Arenas& operator=(const Arenas&) = delete;
    ~Arenas();

    // A block of at least `size` bytes, not initialised. Throws Error(memory).
    Block take(std::uint64_t size);
    // `incomplete`: not all of it was written to, so not all of it need have become memory.
    void give(const Block& block, bool incomplete = false);

    // Of the block that begins there; 0 where none does.
    std::uint64_t bytes_of(std::uint32_t arena, std::uint64_t offset) const;
    // The same of several at once: places as pins have them (index.hpp).
    void bytes_of(std::span<const std::uint64_t> places, std::span<std::uint64_t> bytes) const;

    // Gives back what has been empty for too long. To be called when timer() can be read.
    void trim(base::TimePoint now);
    int timer() const { return timer_.get(); }
    // Gives back all that is empty.
    void give_back();

    // Takes a sealed file over as an arena with one block, which may only be read, and goes when
    // that is given. nullopt where there are enough of them, and where it is not sealed, of another
    // size, or has holes. Throws Error(memory).
    std::optional<Block> adopt(base::Fd&& file, std::uint64_t bytes);
    // So many at the most: each takes a descriptor of this process, and a mapping of every reader.
    static std::size_t most_adopted();

    // nullptr where it has been given back to the system.
    std::shared_ptr<const Arena> arena(std::uint32_t number) const;

    struct Usage {
        std::uint64_t arenas = 0;
        std::uint64_t reserved = 0;  // bytes of all arenas, touched or not
        std::uint64_t taken = 0;     // bytes of blocks
        std::uint64_t slack = 0;     // bytes of slabs that no block has
        std::uint64_t largest = 0;   // the most that a block can have without a new arena
        std::uint64_t adopted = 0;   // arenas of one block each, among the others
        std::uint64_t adopted_bytes = 0;
        std::uint64_t touched = 0;  // bytes that blocks have, or had; only counted with a limit
    };
    Usage usage() const;

    // The bytes that a block has for a value of `size` bytes.
    static std::uint64_t capacity(std::uint64_t size);

  private:
    // A run of pages that is cut into blocks of one size.
    struct Slab {
        std::uint64_t block_bytes;
        std::vector<std::uint32_t> free;  // numbers of blocks
        std::uint32_t blocks;
    };
    struct Room {
        std::shared_ptr<const Arena> arena;
        Extents pages;
        std::map<std::uint64_t, Slab> slabs;                       // by where they begin
        std::unordered_map<std::uint64_t, std::uint64_t> large{};  // bytes of blocks of whole pages
        std::optional<base::TimePoint> empty_since{};
        bool told = false;            // whether readers were told to unmap it since it was empty
        std::uint64_t tried = 0;      // when it was last to go: by `round_`
        std::vector<bool> touched{};  // pages, where there is a limit
        std::uint64_t touched_bytes = 0;
    };
    using Rooms = std::map<std::uint32_t, Room>;
    using SlabPlace = std::pair<std::uint32_t, std::uint64_t>;  // arena and offset

    // Holds the lock. What is dropped meanwhile is freed after it: of a large arena that takes
    // long.
    class SCOPED_CAPABILITY Locked {
      public:
        explicit Locked(Arenas& arenas) ACQUIRE(arenas.mutex_) : arenas_(arenas) {
            arenas_.mutex_.lock();
        }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;
        ~Locked() RELEASE() {
            gone_.swap(arenas_.gone_);
            arenas_.mutex_.unlock();
        }

      private:
        Arenas& arenas_;
        Rooms gone_;
    };

    Block take_small(std::uint64_t block_bytes) REQUIRES(mutex_);
    // `used` are those of the bytes that a value is to have now.
    Block take_pages(std::uint64_t bytes, std::uint64_t used) REQUIRES(mutex_);
    void give_pages(std::uint32_t arena, std::uint64_t offset, std::uint64_t bytes)
        REQUIRES(mutex_);
    Room& add_arena(std::uint64_t at_least) REQUIRES(mutex_);
    bool counts_pages() const { return most_bytes_ != kAnyBytes || bound_ != nullptr; }
    // Return the bytes that a block reuses; nullopt where there is no room for those that are
    // fresh.
    std::optional<std::uint64_t> touch(Room& room, std::uint64_t page, std::uint64_t count,
                                       std::uint64_t used) REQUIRES(mutex_);
    std::optional<std::uint64_t> tell_block(std::uint64_t fresh, std::uint64_t used)
        REQUIRES(mutex_);
    void untouch(Room& room, std::uint64_t offset, std::uint64_t bytes) REQUIRES(mutex_);
    void tell_idle() noexcept REQUIRES(mutex_);
    void tell_given(const Block& block) noexcept REQUIRES(mutex_);
    void tell_readers(Room& room) REQUIRES(mutex_);
    // For one of those that hold the lock by a Locked.
    bool try_drop(Rooms::iterator room) REQUIRES(mutex_);
    Rooms::iterator longest_empty(bool untried = false) REQUIRES(mutex_);
    std::uint64_t bytes_at(std::uint32_t arena, std::uint64_t offset) const REQUIRES(mutex_);
    void set_timer() REQUIRES(mutex_);
    void give_adopted(const Block& block) REQUIRES(mutex_);

    const OnDrop on_drop_;
    const std::uint64_t first_bytes_;
    const std::uint64_t most_bytes_;
    const std::uint64_t keep_bytes_;
    const std::shared_ptr<ArenaBound> bound_;
    const std::shared_ptr<Leftovers> leftovers_;
    const std::shared_ptr<threads::Reclaimer> reclaimer_ = std::make_shared<threads::Reclaimer>();
    const base::Fd timer_;
    mutable base::Mutex mutex_;
    Rooms rooms_ GUARDED_BY(mutex_);  // the oldest first
    Rooms gone_ GUARDED_BY(mutex_);   // are to be freed
    std::map<std::uint32_t, std::shared_ptr<const Arena>> adopted_ GUARDED_BY(mutex_);
    std::map<std::uint64_t, std::set<SlabPlace>> partly_
        GUARDED_BY(mutex_);  // slabs with room, by block size
    std::uint32_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t reserved_ GUARDED_BY(mutex_) = 0;
    std::uint64_t kept_ GUARDED_BY(mutex_) = 0;  // bytes of arenas that are empty
    std::uint64_t taken_ GUARDED_BY(mutex_) = 0;
    std::uint64_t slack_ GUARDED_BY(mutex_) = 0;
    std::uint64_t adopted_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t touched_ GUARDED_BY(mutex_) = 0;
    std::uint64_t round_ GUARDED_BY(mutex_) = 0;   // of tries to give arenas back
    std::int64_t told_ GUARDED_BY(mutex_) = 0;     // of what lies idle, to `bound_`
    std::uint64_t reused_ GUARDED_BY(mutex_) = 0;  // by blocks, as `bound_` counts
};

}  // namespace ucxstore::shared

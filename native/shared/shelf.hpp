// Where a server keeps the values that the processes of its host may see: arenas, the index of what
// is in them, and the tables of what readers have pinned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/counters.hpp"
#include "base/mutex.hpp"
#include "memory/region.hpp"
#include "shared/arenas.hpp"
#include "shared/huge_page_maker.hpp"
#include "shared/index.hpp"
#include "shared/retired_blocks.hpp"

namespace ucxstore::shared {

struct ShelfOptions {
    std::uint64_t first_bytes = Arenas::kFirstBytes;  // of the first arena
    std::uint64_t most_bytes = Arenas::kAnyBytes;     // see Arenas
    // The bytes of values that all readers together may hold for as long as they like; fewer where
    // `bound` has less room.
    std::uint64_t most_held = ReaderLimit::kNoLimit;
    bool counts_uses = false;  // whether readers count what they read
    // Empty arenas of so many bytes together are kept for a while: see timer().
    std::uint64_t keep_bytes = 0;
    std::shared_ptr<ArenaBound> bound = nullptr;  // see Arenas
};

// Called from any thread. Regions keep it alive.
class Shelf : public std::enable_shared_from_this<Shelf> {
  public:
    // Throws Error(memory), Error(resource).
    static std::shared_ptr<Shelf> make(const ShelfOptions& options = {});
    // The shelf of a value; nullptr where that is on none.
    static std::shared_ptr<Shelf> of(const memory::Region& value);
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    // Memory for a value of `size` bytes that is to be put under `key`. `keeps` lives until it can
    // be used for something else. Throws Error(memory).
    std::shared_ptr<memory::Region> allocate(std::string_view key, std::uint64_t size,
                                             std::shared_ptr<void> keeps = nullptr);
    // A value that has come in a file (sealed.hpp), with the key behind it: it is published as one
    // of allocate(). nullptr where the file cannot be taken over. Throws Error(memory).
    std::shared_ptr<memory::Region> adopt(std::string_view key, std::uint64_t size, base::Fd&& file,
                                          std::shared_ptr<void> keeps = nullptr);
    // Notes that a value of allocate() will not be written to any more, and was not in full.
    void note_incomplete(const memory::Region& value);
    // The bytes that it takes.
    static std::uint64_t capacity(std::string_view key, std::uint64_t size) {
        return Arenas::capacity(block_bytes(size, key.size()));
    }
    // Whether a value lies here, shown or not.
    bool holds(const memory::Sized& value) const;

    // Shows a value to readers, in place of what the key had. It was made above for that key, has
    // its version, and does not change any more. `until`: see IndexEntry. Where there is no memory
    // for a larger index, readers find nothing under the key, and ask.
    void publish(const memory::Region& value, std::uint64_t until = IndexEntry::kForEver);
    // Readers do not find it from now on; who has pinned the value keeps it.
    void withdraw(std::string_view key);
    // The same for the key of a value; does nothing for one that is not shown here.
    void withdraw(const memory::Sized& value);
    // From then on readers find nothing, on boot_nanoseconds(); for ever at first.
    void believe_until(std::uint64_t until);
    // From now on readers find nothing at all. What they have pinned stays as it is.
    void end();

    // A table for one more reader, whose pins count until that has gone; `keeps` lives as long.
    // Throws Error(memory), Error(resource), and Error(scratch_ended) after end().
    std::shared_ptr<PinTable> add_reader(std::shared_ptr<const void> keeps = nullptr,
                                         std::shared_ptr<Holder> holder = nullptr);
    // Looks at what readers have pinned: see RetiredBlocks.
    void sweep(bool needed = false) { retired_blocks_.sweep(needed); }
    void sweep_soon() { retired_blocks_.sweep_soon(); }
    void make_room(std::uint64_t bytes, bool needed) { retired_blocks_.make_room(bytes, needed); }
    // Whether a reader has anything pinned.
    bool pins_any(const PinTable& table) const { return retired_blocks_.pins_any(table); }
    // Drops what is kept for readers that have gone.
    void forget_gone() { retired_blocks_.forget_gone(); }
    // Gives back memory that has been empty for too long. To be called when timer() can be read.
    void trim() { arenas_.trim(base::Clock::now()); }
    int timer() const { return arenas_.timer(); }
    // The same of all that is empty.
    void give_back() { arenas_.give_back(); }
    // Bytes without a key that readers may still have pinned.
    std::uint64_t waiting() const { return retired_blocks_.waiting(); }
    // How often readers say that they have read a value since the last call.
    unsigned take_uses(const memory::Sized& value) const;
    // Tells of a value whether readers have it pinned, as they have now.
    std::function<bool(const memory::Sized&)> pinned() const;

    // The arena that a value lies in; nullopt where it is none of this shelf's that readers find.
    std::optional<std::uint32_t> arena_with(const memory::Region& value) const;
    // Counts a reader that asked, and was told to look here.
    void count_shown() { ++shown_; }
    // Values that readers have read without asking, as they say.
    std::uint64_t seen_unasked() const;

    // Descriptors for readers: the caller's own copies. Throws Error(resource).
    struct Index {
        base::Fd descriptor;
        std::uint64_t generation;  // another one for each index
    };
    Index index() const;
    std::uint64_t generation() const;
    base::Fd reader_limit() const;
    // None where the arena is not there any more; and the bytes of its blocks.
    struct SharedArena {
        base::Fd descriptor;
        std::uint64_t bytes = 0;
    };
    SharedArena arena(std::uint32_t number) const;

    // `on_drop` is told the number of each arena that is given back to the system, on any thread,
    // until the handle goes: readers should unmap it, too. kAllArenas: the shelf has ended.
    static constexpr std::uint32_t kAllArenas = 0;
    using OnDrop = std::function<void(std::uint32_t)>;
    std::shared_ptr<void> watch_drops(OnDrop on_drop);

    // Of what was there at the last look at pins. Another one follows.
    base::ShelfCounts counts();

  private:
    class Value;

    explicit Shelf(const ShelfOptions& options);
    const Value* own(const memory::Sized& value) const;
    const std::byte* bytes_at(Place place) const;

    void dropped(std::uint32_t number);

    const bool counts_uses_;
    std::atomic<std::uint64_t> shown_ = 0;
    base::Mutex watchers_mutex_;
    std::vector<std::weak_ptr<OnDrop>> watchers_ GUARDED_BY(watchers_mutex_);
    Arenas arenas_;
    // At once: whoever reads what was just written should be able to map it.
    HugePageMaker huge_page_maker_{std::chrono::milliseconds(0)};
    ReaderLimit reader_limit_;
    RetiredBlocks retired_blocks_;
    mutable base::Mutex mutex_;
    bool ended_ GUARDED_BY(mutex_) = false;
    IndexWriter index_ GUARDED_BY(mutex_){
        [this](Place place, std::uint64_t) { return bytes_at(place); }};
};

}  // namespace ucxstore::shared

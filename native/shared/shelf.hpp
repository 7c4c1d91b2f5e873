// Where a server keeps the values that the processes of its host may see: arenas, the index of what
// is in them, and the tables of what readers have pinned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/counters.hpp"
#include "base/region.hpp"
#include "shared/arenas.hpp"
#include "shared/collapser.hpp"
#include "shared/index.hpp"
#include "shared/limbo.hpp"

namespace ucxstore::shared {

// Called from any thread. Regions keep it alive.
class Shelf : public std::enable_shared_from_this<Shelf> {
  public:
    // `most_held`: the bytes of values that all readers together may hold for as long as they like.
    static std::shared_ptr<Shelf> make(std::uint64_t most_held = Board::kNoLimit);
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    // Memory for a value of `size` bytes that is to be put under `key`. Throws Error(memory).
    std::shared_ptr<Region> allocate(std::string_view key, std::uint64_t size);
    // A value that has come in a file (sealed.hpp), with the key behind it: it is published as one
    // of allocate(). nullptr where the file cannot be taken over. Throws Error(memory).
    std::shared_ptr<Region> adopt(std::string_view key, std::uint64_t size, Fd file);

    // Shows a value to readers, in place of what the key had. It was made above for that key, has
    // its version, and does not change any more. `until`: see Entry. Where there is no memory for a
    // larger index, readers find nothing under the key, and ask.
    void publish(const Region& value, std::uint64_t until = Entry::kForEver);
    // Readers do not find it from now on; who has pinned the value keeps it.
    void withdraw(std::string_view key);

    // A table for one more reader, whose pins count until that has gone. Throws Error(memory),
    // Error(resource).
    std::shared_ptr<PinTable> add_reader();
    // To be called when a reader has gone, or holds much more or less than before.
    void sweep() { limbo_.sweep(); }
    // Gives back memory that has been empty for too long. To be called when timer() can be read.
    void trim() { arenas_.trim(Clock::now()); }
    int timer() const { return arenas_.timer(); }

    // The arena that a value lies in; nullopt where it is none of this shelf's that readers find.
    std::optional<std::uint32_t> arena_with(const Region& value) const;

    // Descriptors for readers: the caller's own copies. Throws Error(resource).
    struct Index {
        Fd descriptor;
        std::uint64_t generation;  // another one for each index
    };
    Index index() const;
    std::uint64_t generation() const;
    Fd board() const;
    // None where the arena is not there any more; and the bytes of its blocks.
    struct SharedArena {
        Fd descriptor;
        std::uint64_t bytes = 0;
    };
    SharedArena arena(std::uint32_t number) const;

    // `on_drop` is told the number of each arena that is given back to the system, on any thread,
    // until the handle goes: readers should unmap it, too.
    using OnDrop = std::function<void(std::uint32_t)>;
    std::shared_ptr<void> watch_drops(OnDrop on_drop);

    // Of what is there now: what nobody reads any more is freed first.
    ShelfCounts counts();

  private:
    class Value;

    explicit Shelf(std::uint64_t most_held);
    const std::byte* bytes_at(Place place) const;

    void dropped(std::uint32_t number);

    std::mutex watchers_mutex_;
    std::vector<std::weak_ptr<OnDrop>> watchers_;
    Arenas arenas_;
    Collapser collapser_;
    Board board_;
    Limbo limbo_{arenas_, &board_};
    mutable std::mutex mutex_;
    IndexWriter index_{[this](Place place, std::uint64_t) { return bytes_at(place); }};
};

}  // namespace ucxstore::shared

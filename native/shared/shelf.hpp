// Where a server keeps the values that the processes of its host may see: arenas, the index of what
// is in them, and the tables of what readers have pinned.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/region.hpp"
#include "shared/index.hpp"
#include "shared/limbo.hpp"
#include "shared/arenas.hpp"

namespace ucxstore::shared {

// Called from any thread. Regions keep it alive.
class Shelf : public std::enable_shared_from_this<Shelf> {
  public:
    static std::shared_ptr<Shelf> make();
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    // Memory for a value of `size` bytes that is to be put under `key`. Throws Error(memory).
    std::shared_ptr<Region> allocate(std::string_view key, std::uint64_t size);

    // Shows a value to readers, in place of what the key had. It is of allocate() for that key, has
    // its version, and does not change any more. `until`: see Entry. Where there is no memory for a
    // larger index, readers find nothing under the key, and ask.
    void publish(const Region& value, std::uint64_t until = Entry::kForEver);
    // Readers do not find it from now on; who has pinned the value keeps it.
    void withdraw(std::string_view key);

    // A table for one more reader, whose pins count for as long as it lives. Throws Error(memory).
    std::shared_ptr<PinTable> add_reader();
    // To be called when a reader has gone.
    void sweep() { limbo_.sweep(); }

    // Descriptors for readers: the caller's own copies. Throws Error(resource).
    Fd index() const;
    // None where the arena is not there any more.
    Fd arena(std::uint32_t number) const;

    struct Usage {
        Arenas::Usage arenas;
        std::uint64_t keys = 0;
        std::uint64_t waiting = 0;  // bytes of values without a key that are pinned
    };
    Usage usage() const;

  private:
    class Value;

    Shelf() = default;
    const std::byte* bytes_at(Place place) const;

    Arenas arenas_;
    Limbo limbo_{arenas_};
    mutable std::mutex mutex_;
    IndexWriter index_{[this](Place place) { return bytes_at(place); }};
};

}  // namespace ucxstore::shared

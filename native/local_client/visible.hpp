// What a client sees of the memory of a server of its host: the index, the arenas, its own pins.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/link.hpp"
#include "client/operation.hpp"
#include "local_client/held.hpp"
#include "local_client/seen_arena.hpp"
#include "shared/index.hpp"
#include "shared/life.hpp"
#include "shared/pins.hpp"

namespace ucxstore::local_client {

// Never changes: what comes or goes makes another one. Any thread.
struct Visible {
    std::shared_ptr<const shared::LifeWatch> life;
    std::shared_ptr<shared::Pins> pins;
    std::shared_ptr<HeldValues> held;
    std::shared_ptr<const shared::IndexReader> index;
    std::map<std::uint32_t, std::shared_ptr<const SeenArena>> arenas;

    // Whether the server lets its values be seen: it lives, and has not ended the session.
    bool usable() const {
        return pins != nullptr && index != nullptr && !life->over() && !pins->ended();
    }

    // Does what a server would do for a get of this item: copies what is wanted of the value, lends
    // it where the operation borrows, or notes why that cannot be. False where it is not to be seen
    // here: then the server must be asked, and nothing was noted. `asked`: it was, and has counted
    // this use of the value.
    bool answer(const std::string& peer, client::Operation& operation, std::uint32_t item,
                bool asked = false) const;

    // Copies a whole value to memory that it asks for. nullopt as in answer(), or where it has no
    // room.
    std::optional<std::uint64_t> copy(std::string_view key,
                                      const client::Link::MakeRoom& make_room) const;

    // The value itself, to read, which stays as it is for as long as somebody has the region: here,
    // and in processes that are forked meanwhile. nullptr as where copy() returns nullopt, and
    // where it would be more than may be held.
    std::shared_ptr<memory::Region> hold(std::string_view key) const;

  private:
    class Borrowed;
    class Used;
    struct Wanted;

    bool map_into(client::Operation& operation, const client::Item& item, const Wanted& wanted,
                  Used& pin) const;
    std::optional<shared::IndexEntry> find(std::string_view key, std::atomic<shared::Place>* pin,
                                           bool asked = false) const;
    const std::byte* bytes_at(shared::Place place, std::uint64_t bytes) const;
};

}  // namespace ucxstore::local_client

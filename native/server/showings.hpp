// The shelves that a client of this host has been shown: that of the server's values, and those of
// scratch spaces whose names it knows.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/pending_get.hpp"
#include "server/showing.hpp"
#include "server/storages.hpp"

namespace ucxstore {

// On the session's thread.
class Showings {
  public:
    // Told on any thread of an arena that has gone of the shelf of a scratch space, or, by
    // Shelf::kAllArenas, of the end of that shelf.
    using OnDrop = std::function<void(std::uint64_t shelf, std::uint32_t arena)>;

    // `life` is the descriptor of the thread's life.
    Showings(Storages storages, int life) : storages_(std::move(storages)), life_(life) {}
    Showings(const Showings&) = delete;
    Showings& operator=(const Showings&) = delete;

    // Appends the messages that the client needs to see the value of an open get itself, and
    // returns the value where it sees it; nullptr where it cannot.
    std::shared_ptr<const Region> show(const PendingGet& get, const OnDrop& on_drop,
                                       std::vector<local::OutMessage>& messages);
    // Appends what the client is to be told of an arena that has gone, or of the end of a shelf.
    void drop(std::uint64_t shelf, std::uint32_t arena, std::vector<local::OutMessage>& messages);
    // Looks again at what clients hold.
    void sweep();
    // From now on the client finds nothing.
    void close();

  private:
    struct Space {
        std::unique_ptr<Showing> showing;
        std::shared_ptr<void> watch;  // of the shelf's arenas, and of its end
        std::uint64_t seen = 0;       // by the client, when it was looked at last
    };
    using Spaces = std::list<Space>;

    std::shared_ptr<const Region> shelved(const PendingGet& get) const;
    Showing& main(const std::shared_ptr<shared::Shelf>& shelf);
    Showing& space(const std::shared_ptr<shared::Shelf>& shelf, std::string_view name,
                   const OnDrop& on_drop, std::vector<local::OutMessage>& messages);
    void forget_one(std::vector<local::OutMessage>& messages);
    void forget(Spaces::iterator space, std::vector<local::OutMessage>& messages);

    const Storages storages_;
    const int life_;
    std::unique_ptr<Showing> main_;
    Spaces spaces_;  // the one asked for last is at the end
    std::uint64_t last_number_ = local::kMainShelf;
};

}  // namespace ucxstore

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

#include "local_server/showing.hpp"
#include "sessions/pending_get.hpp"
#include "sessions/storages.hpp"

namespace ucxstore::local_server {

// On the session's thread.
class Showings {
  public:
    // Told on any thread of an arena that has gone of the shelf of a scratch space, or, by
    // Shelf::kAllArenas, of the end of that shelf.
    using OnDrop = std::function<void(std::uint64_t shelf, std::uint32_t arena)>;

    // Makes whose account it is that the client pins values on, for each table of pins. Throws
    // Error(resource) where it has no room for another one.
    using MakeHolder = std::function<std::shared_ptr<shared::Holder>()>;

    // `life` is the descriptor of the thread's life. `keeps` lives until the client has let go of
    // all its tables of pins; nobody else has many copies. `seen_by` is told where it reads.
    Showings(
        sessions::Storages storages, int life, std::shared_ptr<const void> keeps,
        MakeHolder make_holder = [] { return nullptr; },
        std::shared_ptr<base::SeenByClient> seen_by = std::make_shared<base::SeenByClient>())
        : storages_(std::move(storages)),
          life_(life),
          keeps_(std::move(keeps)),
          make_holder_(std::move(make_holder)),
          seen_by_(std::move(seen_by)) {}
    Showings(const Showings&) = delete;
    Showings& operator=(const Showings&) = delete;

    // Appends the messages that the client needs to see the value of an open get itself, and
    // returns the value where it sees it; nullptr where it cannot.
    std::shared_ptr<const memory::Region> show(const sessions::PendingGet& get,
                                               const OnDrop& on_drop,
                                               std::vector<stream::OutMessage>& messages);
    // Appends what the client is to be told of an arena that has gone, or of the end of a shelf.
    void drop(std::uint64_t shelf, std::uint32_t arena, std::vector<stream::OutMessage>& messages);
    // Values that the client says it has read.
    std::uint64_t seen() const;
    // Whether the client has anything pinned.
    bool pinned() const;
    // Looks again at what clients hold, once it is time for that.
    void sweep_soon();
    // From now on the client finds nothing.
    void close();

  private:
    struct Space {
        std::unique_ptr<Showing> showing;
        std::shared_ptr<void> watch;  // of the shelf's arenas, and of its end
        std::uint64_t seen = 0;       // by the client, when it was looked at last
    };
    using Spaces = std::list<Space>;

    bool may_have_more_tables();
    std::shared_ptr<const memory::Region> shelved(const sessions::PendingGet& get) const;
    Showing& main(const std::shared_ptr<shared::Shelf>& shelf);
    Showing& space(const std::shared_ptr<shared::Shelf>& shelf, std::string_view name,
                   const OnDrop& on_drop, std::vector<stream::OutMessage>& messages);
    void forget_one(std::vector<stream::OutMessage>& messages);
    void forget(Spaces::iterator space, std::vector<stream::OutMessage>& messages);

    const sessions::Storages storages_;
    const int life_;
    std::shared_ptr<const void> keeps_;
    const MakeHolder make_holder_;
    const std::shared_ptr<base::SeenByClient> seen_by_;
    std::unique_ptr<Showing> main_;
    Spaces spaces_;                 // the one asked for last is at the end
    base::TimePoint look_again_{};  // at which tables there still are
    std::uint64_t last_number_ = local::kMainShelf;
};

}  // namespace ucxstore::local_server

// What a client of this host has been shown of a shelf: the index, its table of pins, and arenas.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "local/frames.hpp"
#include "shared/shelf.hpp"
#include "stream/stream_socket.hpp"

namespace ucxstore::local_server {

// On the session's thread.
class Showing {
  public:
    // `life` is the descriptor of the thread's life. `keeps` lives until the client has let go of
    // its table of pins, and `holder` is told what it has pinned, `seen_by` what it reads. `number`
    // is the shelf's for the client, and `space` the name of the scratch space that it is of; ""
    // for none.
    Showing(std::shared_ptr<shared::Shelf> shelf, int life, std::shared_ptr<const void> keeps,
            std::shared_ptr<shared::Holder> holder, std::shared_ptr<base::SeenByClient> seen_by,
            std::uint64_t number = local::kMainShelf, std::string space = {});
    Showing(const Showing&) = delete;
    Showing& operator=(const Showing&) = delete;
    // From now on the client finds nothing. What it has pinned stays.
    ~Showing();

    // Appends the messages that the client needs to see the value itself; false where it is none of
    // the shelf's. Throws Error(resource), Error(memory).
    bool show(const memory::Region& value, std::vector<stream::OutMessage>& messages);
    // Whether the client was shown this arena, which has gone; to be called once.
    bool forget(std::uint32_t arena) { return arenas_.erase(arena) > 0; }
    // Values that the client says it has read there.
    std::uint64_t seen() const { return pins_ == nullptr ? 0 : pins_->seen().gets; }
    // Whether the client has anything pinned.
    bool pinned() const;
    const std::shared_ptr<shared::Shelf>& shelf() const { return shelf_; }
    std::uint64_t number() const { return number_; }
    const std::string& space() const { return space_; }

  private:
    const std::shared_ptr<shared::Shelf> shelf_;
    const int life_;
    const std::shared_ptr<const void> keeps_;
    const std::shared_ptr<shared::Holder> holder_;
    const std::shared_ptr<base::SeenByClient> seen_by_;
    const std::uint64_t number_;
    const std::string space_;
    std::shared_ptr<shared::PinTable> pins_;
    std::uint64_t generation_ = 0;  // of the index that it has
    std::set<std::uint32_t> arenas_;
};

}  // namespace ucxstore::local_server

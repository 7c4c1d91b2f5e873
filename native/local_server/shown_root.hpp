// The directory of a server, shown to a client of its host: it reads the files itself.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "sessions/storages.hpp"
#include "shared/session_page.hpp"
#include "stream/stream_socket.hpp"

namespace ucxstore::local_server {

// On the session's thread.
class ShownRoot {
  public:
    // nullptr where values are in no directory, or the client at the socket must not see it: then
    // they are sent. `life` is the descriptor of the thread's life.
    // `seen_by` is told where the client reads.
    static std::unique_ptr<ShownRoot> make(const sessions::Storages& storages, int life, int socket,
                                           std::shared_ptr<base::SeenByClient> seen_by);
    ShownRoot(const ShownRoot&) = delete;
    ShownRoot& operator=(const ShownRoot&) = delete;
    // From now on the client finds nothing.
    ~ShownRoot() {
        page_->end();
        seen_by_->drop(page_.get());
    }

    // Values that the client says it has read there.
    std::uint64_t seen() const { return page_->seen().gets; }
    // What the client needs for it; to be called once.
    stream::OutMessage take_message() { return std::move(message_); }

  private:
    // Throws Error(resource), Error(memory).
    ShownRoot(const sessions::Storages& storages, int life,
              std::shared_ptr<base::SeenByClient> seen_by);

    const std::shared_ptr<base::SeenByClient> seen_by_;
    const std::shared_ptr<shared::SessionPage> page_;
    stream::OutMessage message_{.kind = stream::FrameKind::root};
};

}  // namespace ucxstore::local_server

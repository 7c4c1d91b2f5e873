// A session on a Unix socket, with a client of this host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local/frames.hpp"
#include "local_server/seen_upload.hpp"
#include "local_server/showings.hpp"
#include "local_server/shown_root.hpp"
#include "stream_server/stream_session.hpp"

namespace ucxstore::local_server {

// On the thread that makes it.
class LocalSession : public stream_server::StreamSession {
  public:
    // `life` tells clients that the server lives.
    LocalSession(Parts parts, int life);
    ~LocalSession() override { close(); }

    void note_seen() override;
    // Not while the client has anything pinned: what is left of the session then keeps its place.
    bool may_yield() override;
    void drop_arena(std::uint64_t shelf, std::uint32_t number) override;

  private:
    class PinHolder;

    std::shared_ptr<LocalSession> self() {
        return std::static_pointer_cast<LocalSession>(shared_from_this());
    }
    bool show(const sessions::PendingGet& get) override;
    void clear() override;
    std::optional<std::vector<ucp_dt_iov_t>> place(stream::FrameKind kind, std::string_view header,
                                                   std::uint64_t body_bytes) override;
    void take(stream::InMessage message) override;
    void take_other(stream::InMessage& message) override;
    void on_value(const stream::InMessage& message);
    void on_file(stream::InMessage& message);

    // A segment in the upload is a parcel until it is copied, or dropped.
    void receive(Parcel parcel, std::unique_ptr<Sink> sink, std::uint64_t length,
                 memory::Write write) override;
    void drop(Parcel parcel) override;

    Showings::OnDrop on_drop();
    std::shared_ptr<shared::Holder> make_holder();

    const bool takes_files_;  // whether it takes over what comes in files
    Showings showings_;
    std::unique_ptr<ShownRoot> shown_root_;  // nullptr where there is nothing to see
    std::optional<SeenUpload> upload_;
    local::RoomHeader* segment_ = nullptr;  // that has just come
    bool root_sent_ = false;
    std::uint64_t seen_ = 0;  // by the client, when that was looked at last
};

}  // namespace ucxstore::local_server

// One client of a server, on the server's side. Everything here runs on one progress thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/counters.hpp"
#include "cache/remote.hpp"
#include "protocol/wire.hpp"
#include "ucx/endpoint.hpp"
#include "ucx/peer.hpp"
#include "ucx/request.hpp"

namespace ucxstore {

class Session : public Peer {
  public:
    // Takes the worker that it alone uses. Throws Error(connect).
    Session(std::unique_ptr<Worker> worker, Holdings holdings, std::weak_ptr<Progress> progress,
            Counters& counters, bool read_only, const wire::Token& token,
            const std::string& address, const std::string& peer);

    void lose() override { doom(); }
    void shut(const char*) override { close(); }
    // Ends it where the client is gone, or has stalled.
    TimePoint tick(Progress& progress, TimePoint now) override;
    bool busy() const override { return awaits_client() || awaits_storage() || !waiting_.empty(); }

  private:
    // The client is gone, or has broken the protocol: noted where nothing may be closed.
    void doom() { doomed_ = true; }
    bool failed() const { return endpoint_ != nullptr && endpoint_->failed(); }
    // Whether any of what is under way is the client's to move.
    bool awaits_client() const {
        return active_sends_ + active_receives_ + arriving_.size() > waits_for_room_;
    }

    // Makes the endpoint, once the client's first message has come: so that UCX always uses the
    // connection that the client has made, and a client never has to accept one (which a forked
    // child cannot: UCX's accepting thread stays with its parent). Not inside UCX's callbacks.
    void meet();
    // Frees the memory in bounded time: everything in flight completes as cancelled.
    void close();
    std::shared_ptr<Session> self() {
        return std::static_pointer_cast<Session>(shared_from_this());
    }

    static ucs_status_t on_request_message(void* self, const void* header, std::size_t header_size,
                                           void* data, std::size_t size,
                                           const ucp_am_recv_param_t* param);
    static ucs_status_t on_value_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param);
    template <typename Header, typename Handle>
    ucs_status_t dispatch(const void* header, std::size_t header_size, Handle handle);

    // Both throw Error(protocol) where the client breaks it.
    void on_request(const wire::RequestHeader& header, std::span<const std::byte> body);
    // A segment of a value: `descriptor` is UCX's for rendezvous, else null and `data` holds it.
    // Whether the descriptor is kept for later.
    bool on_value(const wire::ValueHeader& header, std::string key, std::span<const std::byte> data,
                  void* descriptor);
    // A get, on its way out: a key until its turn comes, then a pinned region that is sent in
    // segments.
    struct Waiting {
        std::uint64_t request;
        std::uint32_t item;
        wire::GetItem get;
        std::shared_ptr<const Region> region;
        Layout layout;
        std::vector<ucp_dt_iov_t> ranges;  // where there are several, `layout` tells nothing
        std::uint64_t size = 0;
        std::uint64_t sent = 0;
    };
    // A segment that is not received yet.
    struct Held {
        wire::ValueHeader header;
        void* descriptor;
        std::string data;  // where there is none
    };
    // A value on its way in, in segments.
    struct Arriving {
        Arriving() = default;
        Arriving(const Arriving&) = delete;
        Arriving& operator=(const Arriving&) = delete;
        ~Arriving();

        std::string key;
        bool if_absent = false;
        bool accepted = false;
        bool refused = false;
        // One of the two once accepted; neither, or refused: it is only counted.
        std::shared_ptr<Storage> home;  // before what is on its way into it
        std::unique_ptr<Incoming> incoming;
        std::shared_ptr<Region> remote;  // for a remote storage
        WriteBudget::Room room;
        // Segments that wait for room, and whose descriptors they are.
        Worker* waits = nullptr;
        std::vector<Held> held;
        wire::Segments segments;
        std::uint64_t received = 0;

        std::byte* prepare(std::uint64_t offset, std::uint64_t length);
        void drop_held();
    };
    using ArrivingId = std::pair<std::uint64_t, std::uint32_t>;
    struct HashId {
        std::size_t operator()(const ArrivingId& id) const {
            return std::hash<std::uint64_t>()(id.first * 0x9E3779B97F4A7C15ull + id.second);
        }
    };
    class Send;
    class Receive;

    void pump();
    // Pins the value and finds what is wanted of it; false where there is nothing to send.
    bool open(Waiting& waiting);
    bool begin(Waiting& waiting, std::shared_ptr<const Region> region);
    bool choose(Waiting& waiting);
    void send_segment(Waiting& waiting);
    void abandon(std::uint64_t request);
    void answer(const wire::RequestHeader& header, std::span<const std::byte> body);
    void reply(std::uint64_t request, std::uint32_t item, wire::Status status,
               std::string payload = {}, std::uint64_t value_size = 0,
               std::uint64_t version = wire::kAnyVersion);
    wire::ReplyHeader reply_header(std::uint64_t request, std::uint32_t item,
                                   wire::Status status) const;
    void send(const wire::ReplyHeader& header, std::unique_ptr<Send> request);
    // Tells others what is under way.
    void note();

    // What waits for the remote storage, which holds up nothing else: session_remote.cpp.
    bool awaits_storage() const {
        return !fetching_.empty() || !fetched_.empty() || calls_ + waits_for_room_ > 0;
    }
    // `then` runs with what comes, on the progress thread; neither the thread nor the session is
    // kept alive for that.
    template <typename T, typename Then>
    Later<T> later(Then then);
    void fetch(Waiting& waiting);
    void fetched(std::uint64_t ticket, Outcome<std::shared_ptr<const Region>> outcome);
    void ask(const wire::RequestHeader& header, Ask ask);
    void put(const wire::ValueHeader& header, Arriving& value);

    // Which storage a key is in; nullptr for the remote one. Throws Error(scratch_ended), and
    // Error(storage) where scratch spaces are not offered.
    std::shared_ptr<Storage> home_of(const std::string& key) const;
    // What an owner says of its scratch space: session_scratch.cpp.
    void scratch(const wire::RequestHeader& header, std::span<const std::byte> body);

    void accept(const wire::ValueHeader& header, Arriving& value);
    bool take_room(const wire::ValueHeader& header, Arriving& value);
    void take_memory(const wire::ValueHeader& header, Arriving& value);
    // Whether UCX has taken the descriptor.
    bool fill(const wire::ValueHeader& header, const std::shared_ptr<Arriving>& value,
              std::span<const std::byte> data, void* descriptor);
    void refuse(const wire::ValueHeader& header, const std::exception& error);
    // There is room for a value that has waited for it.
    void admit(const ArrivingId& id, WriteBudget::Room room);
    void count_waiting();
    std::shared_ptr<Arriving> arriving(const wire::ValueHeader& header, const std::string& key);
    void segment_arrived(const wire::ValueHeader& header, const std::shared_ptr<Arriving>& value,
                         ucs_status_t status);

    const Holdings holdings_;
    const std::weak_ptr<Progress> progress_;
    Counters& counters_;
    const std::shared_ptr<ClientCounters> client_;
    const bool read_only_;
    const wire::Token token_;
    const std::string address_;
    std::unique_ptr<Endpoint> endpoint_;
    std::optional<wire::RequestHeader> first_ping_;
    std::deque<Waiting> waiting_;
    std::unordered_map<std::uint64_t, Waiting> fetching_;  // gets that the remote storage sees to
    std::deque<Waiting> fetched_;                          // and those that it has seen to
    std::uint64_t last_ticket_ = 0;
    std::uint64_t calls_ = 0;  // other requests that it sees to
    std::unordered_map<ArrivingId, std::shared_ptr<Arriving>, HashId> arriving_;
    std::uint64_t waits_for_room_ = 0;  // of these
    std::deque<std::uint64_t> abandoned_;
    std::uint64_t active_sends_ = 0;
    std::uint64_t active_bytes_ = 0;
    std::uint64_t active_receives_ = 0;
    TimePoint last_moved_ = Clock::now();
    bool pumping_ = false;
    bool doomed_ = false;
};

template <typename T, typename Then>
Later<T> Session::later(Then then) {
    return [progress = progress_, weak = std::weak_ptr(self()), then](Outcome<T> outcome) {
        const auto thread = progress.lock();
        if (thread == nullptr) {
            return;
        }
        thread->post([weak, then, outcome = std::move(outcome)]() mutable {
            const auto session = weak.lock();
            if (session == nullptr || session->closed_) {
                return;
            }
            try {
                then(*session, std::move(outcome));
            } catch (const std::exception&) {  // for want of memory
                session->doom();
            }
        });
    };
}

}  // namespace ucxstore

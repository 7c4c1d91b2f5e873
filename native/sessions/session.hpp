// Session: a client as the server sees it, whatever carries its messages. It has Sending, Arriving
// and Awaiting answer them.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>

#include "base/counters.hpp"
#include "protocol/wire.hpp"
#include "sessions/arriving.hpp"
#include "sessions/awaiting.hpp"
#include "sessions/client_record.hpp"
#include "sessions/operators.hpp"
#include "sessions/sending.hpp"
#include "sessions/storages.hpp"
#include "sessions/turns.hpp"

namespace ucxstore::sessions {

// What its threads raise once it is closed.
inline constexpr const char* kServerClosed = "the server is closed";

// What every session of a server is given.
struct Service {
    Storages storages;
    std::shared_ptr<base::Counters> counters;
    bool read_only = false;
    std::shared_ptr<Walkers> walkers = std::make_shared<Walkers>(storages.walks_wait());
    // Read values that wait for a disk.
    std::shared_ptr<threads::WorkerPool> readers = std::make_shared<threads::WorkerPool>();
    std::shared_ptr<Places> places = std::make_shared<Places>();
    std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
    std::shared_ptr<Operators> operators = std::make_shared<Operators>();

    // The counters as JSON, for session `asker`; 0 for none. See docs/wire.md.
    std::string stats(std::uint64_t asker = 0) const {
        base::ShelfCounts shown = storages.shown_counts();
        std::vector<base::SpaceCounts> spaces;
        if (storages.spaces != nullptr) {
            shown += storages.spaces->shelf_counts();
            spaces = storages.spaces->counts();
        }
        return counters->to_json(spaces, shown, storages.memory_counts(), storages.cache_counts(),
                                 storages.decoded_counts(), ledger->origins(), asker);
    }
};

// On one thread.
class Session {
  public:
    // `thread` runs what comes later; `receiver` receives the parcels of on_value(). `seat` is
    // asked for a turn where something is left to do; then work() is called.
    Session(const Service& service, std::weak_ptr<threads::TaskThread> thread,
            const protocol::Token& token, std::shared_ptr<ClientRecord> client,
            std::shared_ptr<Sending> sending, Receiver& receiver, Turns::Seat& seat);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Reads the header of a message, and handles it. A message that is not the client's is refused.
    // A failure ends the session, at the next look(); none is thrown.
    template <typename Header, typename Handle>
    void dispatch(const void* header, std::size_t header_size, Handle handle);

    // Does what comes before that. As above, a failure ends the session.
    template <typename Call>
    void guard(Call call);
    // Ends it, as something has come that is not the client's.
    void refuse(const char* why);

    // These throw Error(protocol) where the client breaks the protocol.
    // A request that has no room, or whose turn is over, waits until work().
    void on_request(const protocol::RequestHeader& header, std::span<const std::byte> body);
    void on_ping(const protocol::RequestHeader& header);
    // As Arriving::receive().
    bool on_value(const protocol::ValueHeader& header, const std::string& key,
                  const ArrivingValue::Bytes& bytes);
    // A request was changed on its way: tells the client.
    void on_altered(const protocol::RequestHeader& header);

    // The same, of a value that has come in a file, which is left as it is if it is not taken.
    void on_file(const protocol::ValueHeader& header, const std::string& key, base::Fd&& file);

    // Throws Error(protocol) where more waits for the client to take it than one that heeds the
    // limits ever has.
    void check_taken() const;

    // Goes on with what waits, as far as there is room, until the turn is over.
    void work();
    // Whether more should be read from the client: nothing of it waits for room.
    bool reads() const { return requests_.empty() && !sending_->is_full(); }
    // Nothing is read until then; `seat` is asked for a turn once it is to be.
    void pause() { paused_ = true; }

    // Tells the client that the server, or its session, ends, and is to be asked for nothing more.
    void leave();

    struct Look {
        bool over;            // the client is gone, or has stalled: close() is due
        base::TimePoint due;  // of the next look
    };
    Look look(base::TimePoint now);
    // Frees the memory in bounded time: everything in flight ends.
    void close();
    // Whether anything is under way.
    bool busy() const;

  private:
    // Whether anything under way waits for the client.
    bool awaits_client() const { return sending_->in_flight() > 0 || arriving_->awaits_client(); }

    // A request that waits until there is room for what it asks.
    struct Waiting {
        protocol::RequestHeader header;
        std::string body;
        Hold hold;
        base::TimePoint came;
    };
    // False, and nothing done, where there is no room. As on_request().
    bool begin(const protocol::RequestHeader& header, std::span<const std::byte> body,
               base::TimePoint came);
    bool begin_waiting();
    void on_stats(const protocol::RequestHeader& header);
    bool on_operate(const protocol::RequestHeader& header, std::span<const std::byte> body);
    bool on_get(const protocol::RequestHeader& header, std::span<const std::byte> body,
                base::TimePoint came);
    void on_was_read(const protocol::RequestHeader& header, std::span<const std::byte> body);
    void on_space(const protocol::RequestHeader& header, std::span<const std::byte> body);
    bool on_other(const protocol::RequestHeader& header, std::span<const std::byte> body);
    void refuse_for_now(const protocol::RequestHeader& header, std::size_t body_bytes);

    // Whether anything waits for the source, or for what others have of the room for writes.
    bool awaits_others() const {
        return arriving_->awaits_room() ||
               (service_.storages.source != nullptr && (awaiting_->busy() || !gets_.empty()));
    }
    // Grows while that moves.
    std::uint64_t moves() const;
    // Whether anything waits for room in the account, which others of the origin may give back.
    bool awaits_account() const {
        return !requests_.empty() || paused_ || (!gets_.empty() && awaiting_->fetches_enough());
    }
    // Tells the client which of its requests wait, from time to time, while these move. Until when
    // it is not to be called again.
    base::TimePoint tell_of_waiting(base::TimePoint now);

    // Sends what waits, while there is room in flight, until the turn is over.
    void pump();
    void open(PendingGet get);
    std::optional<Answer> decoding_fault(const std::string& key) const;
    std::shared_ptr<const memory::Region> decoded_of_source(const PendingGet& get) const;
    void found(PendingGet get, std::shared_ptr<const memory::Region> value, bool fetched);
    void send(PendingGet get, std::shared_ptr<const memory::Region> value, bool fetched);
    void fetched(std::optional<PendingGet> get, cache::Outcome<Awaiting::Value> outcome);
    void abandon(std::uint64_t request);

    const Service service_;
    const protocol::Token token_;
    const std::shared_ptr<ClientRecord> client_;
    const std::shared_ptr<Sending> sending_;
    const std::shared_ptr<Awaiting> awaiting_;
    const std::shared_ptr<Arriving> arriving_;
    Turns::Seat& seat_;
    Account& account_;
    std::deque<Waiting> requests_;
    std::deque<PendingGet> gets_;  // whose turn has not come
    bool working_ = false;
    bool paused_ = false;
    base::TimePoint tell_at_ = base::TimePoint::max();  // of what waits
    std::uint64_t moves_told_ = 0;                      // when it was told last
    base::TimePoint try_at_{};                          // when it is looked for room again
};

template <typename Header, typename Handle>
void Session::dispatch(const void* header, std::size_t header_size, Handle handle) {
    const auto decoded = protocol::read_header<Header>(header, header_size);
    if (client_->closed() || !decoded || decoded->token != token_) {
        ++service_.counters->messages_refused;
        return;
    }
    guard([&] {
        client_->moved();
        handle(*decoded);
    });
}

template <typename Call>
void Session::guard(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        refuse(error.what());
    }
}

}  // namespace ucxstore::sessions

// Requests of a session that wait for the source or for another thread: gets, calls, walks, and
// values that are written. Nothing else waits for them. A task on the session's thread finishes
// each, unless the session is over or the client has abandoned it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "sessions/arriving_value.hpp"
#include "sessions/operators.hpp"
#include "sessions/sending.hpp"
#include "sessions/storages.hpp"
#include "sessions/walkers.hpp"
#include "threads/task_thread.hpp"

namespace ucxstore::sessions {

// What a call holds until its reply is made: a place, and room for that.
struct CallRoom {
    Hold place;
    Hold reply;
};

// On the session's thread.
class Awaiting : public std::enable_shared_from_this<Awaiting> {
  public:
    using Value = cache::CachedSource::Value;
    using OnFetched = std::function<void(std::optional<PendingGet>, cache::Outcome<Value>)>;

    // `readers` read what waits for a disk. Without a source, fetch(), call(), put() and
    // take_room() are not used; without decoded values, decode() is not. `on_fetched` goes on with
    // a get; it gets none where that was abandoned. `on_ended` runs when anything has ended, and
    // given back what it held.
    Awaiting(const Storages& storages, std::weak_ptr<threads::TaskThread> thread,
             std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
             std::shared_ptr<Walkers> walkers, std::shared_ptr<threads::WorkerPool> readers,
             OnFetched on_fetched, std::function<void()> on_ended);
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

    // Fetches the value of a get from the source.
    void fetch(PendingGet get);
    // Has a stored value decoded for a get, and goes on as after fetch(): the failure says why the
    // client is to do that.
    void decode(PendingGet get, Value stored);
    // Reads what comes next of an open get, whose value waits for a disk, and has it sent.
    void load(PendingGet get);
    // Whether as many are being fetched as can then be sent at once. Those that were abandoned
    // count, as the source has them still.
    bool fetches_enough() const;
    // Whether a value of so many bytes that the source has brought may be kept until it is sent.
    // Else its get waits for another turn, and the cache may have it then.
    bool may_keep(std::uint64_t bytes) const;
    // Makes the call to the source, and replies with its result; meanwhile, that it goes on.
    void call(const ItemId& id, cache::StorageCall call, CallRoom room);
    // The same, of a call to a storage.
    void walk(const ItemId& id, std::shared_ptr<storage::Storage> storage, cache::StorageCall call,
              CallRoom room);
    // Has a request of an operator answered, and replies.
    void operate(const ItemId& id, Operators& operators, Operators::Request request, CallRoom room);
    // Writes a whole value to the source, and replies. `room` is given back once that is done.
    void put(const ItemId& id, std::string key, std::shared_ptr<memory::Region> value,
             bool if_absent, storage::WriteBudget::Room room);
    // Puts a whole value into its storage, which waits for that, and replies.
    void commit(const ItemId& id, std::shared_ptr<ArrivingValue> value);
    // Room for a value that is to be written; nullptr where there is none yet, and `then` gets it
    // later.
    storage::WriteBudget::Room take_room(storage::WriteBudget& budget, std::uint64_t bytes,
                                         std::function<void(storage::WriteBudget::Room)> then);
    // The same for bytes that are here already; nullptr where too many such wait for the source.
    storage::WriteBudget::Room take_room_now(std::uint64_t bytes);
    // Returns a function that replies ok, to be called once, on any thread.
    std::function<void()> reply_when_called(const ItemId& id);

    // Drops the gets of this request; what the source brings for them is not sent. Stops its walks,
    // and tells the source that nobody waits for its calls.
    void abandon(std::uint64_t request);
    // The same for all requests. on_fetched does not run any more.
    void close();

    bool busy() const {
        return !fetches_.empty() || !loads_.empty() || !calls_.empty() || !walks_.empty();
    }
    // Adds the requests that wait.
    void requests(std::set<std::uint64_t>& into) const;

  private:
    // A callback that runs `then` on the session's thread, with this and the result, unless the
    // session is over. It keeps neither the thread nor the session alive.
    template <typename T, typename Then>
    cache::Later<T> later(Then then);
    void fetched(std::uint64_t ticket, cache::Outcome<Value> outcome);
    struct Loading;
    void loaded(std::uint64_t ticket, Loading& loading);
    void walked(std::uint64_t ticket, CallRoom& room, Answer answer);
    // Replies; that the grant has ended, where it has, and nothing was done before that.
    enum class Does : std::uint8_t { read, change };
    void answer_to(const ItemId& id, Does does, Answer answer);
    void begin_call(const ItemId& id) { calls_.insert(id.request); }
    void end_call(const ItemId& id);
    void end_write(const ItemId& id, std::uint64_t bytes, cache::Outcome<bool> outcome);
    // A function for other threads: has this session take in what the client has sent. False where
    // the client has gone, or there is no room for that for some seconds.
    std::function<bool()> catch_up();
    void say_that_it_goes_on(const ItemId& id, std::uint64_t keys);
    // Does what the client waits for. Where there is no memory for it, there may be in a moment; if
    // not, it throws, and the client's time-out tells.
    template <typename Work>
    static void retry(const Work& work);

    struct Asked {
        std::uint64_t request;
        std::shared_ptr<std::atomic<bool>> wanted;
    };
    struct Walking {
        ItemId id;
        std::shared_ptr<Errand> errand;
    };

    const std::shared_ptr<cache::CachedSource> source_;
    const std::shared_ptr<cache::DecodedValues> decoded_;
    const std::weak_ptr<threads::TaskThread> thread_;
    const std::shared_ptr<ClientRecord> client_;
    const std::shared_ptr<Sending> sending_;
    const std::shared_ptr<Walkers> walkers_;
    const std::shared_ptr<threads::WorkerPool> readers_;
    OnFetched on_fetched_;
    std::function<void()> on_ended_;
    // By ticket. What they hold is not here, but with the work that somebody else does: it counts
    // until that is over, also where the session has gone.
    std::unordered_map<std::uint64_t, PendingGet> fetches_;
    std::unordered_map<std::uint64_t, PendingGet> loads_;
    std::unordered_map<std::uint64_t, Asked> asked_;  // calls to the source, and commits
    std::unordered_map<std::uint64_t, Walking> walks_;
    std::uint64_t last_ticket_ = 0;
    std::uint64_t last_bytes_ = 0;  // of a fetched value: the next ones may have as many
    // Requests of all that wait but are no fetches and no walks.
    std::unordered_multiset<std::uint64_t> calls_;
};

template <typename Work>
void Awaiting::retry(const Work& work) {
    for (int tries = 100; tries > 1; --tries) {
        try {
            return work();
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    work();
}

template <typename T, typename Then>
cache::Later<T> Awaiting::later(Then then) {
    return [on = thread_, weak = weak_from_this(), then](cache::Outcome<T> outcome) {
        const auto thread = on.lock();
        if (thread == nullptr) {
            return;
        }
        auto finish = [weak, then, outcome = std::move(outcome)]() mutable {
            const auto self = weak.lock();
            if (self == nullptr || self->client_->closed()) {
                return;
            }
            try {
                self->client_->moved();
                then(*self, std::move(outcome));
                if (self->on_ended_) {
                    self->on_ended_();
                }
            } catch (const std::exception&) {  // for want of memory
                self->client_->doom();
            }
        };
        std::shared_ptr<decltype(finish)> kept;
        retry([&] {
            if (kept == nullptr) {
                kept = std::make_shared<decltype(finish)>(std::move(finish));
            }
            thread->post([kept] { (*kept)(); });
        });
    };
}

}  // namespace ucxstore::sessions

// Requests of a session that wait for the source or for another thread: gets, calls, and values
// that are written. Nothing else waits for them. A task on the session's thread finishes each,
// unless the session is over or the client has abandoned it.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/task_thread.hpp"
#include "server/sending.hpp"
#include "server/storages.hpp"

namespace ucxstore {

// On the session's thread.
class Awaiting : public std::enable_shared_from_this<Awaiting> {
  public:
    using Value = CachedSource::Value;
    using OnFetched = std::function<void(PendingGet, Outcome<Value>)>;

    // `source` may be nullptr: then fetch(), call(), put() and take_room() are not used.
    // `on_fetched` goes on with a get.
    Awaiting(std::shared_ptr<CachedSource> source, std::weak_ptr<TaskThread> thread,
             std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
             OnFetched on_fetched);
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

    // Fetches the value of a get from the source.
    void fetch(PendingGet get);
    // Whether as many are being fetched as can then be sent at once.
    bool fetches_enough() const { return fetches_.size() >= Sending::kMaxMessages; }
    // Makes the call to the source, and replies with its result.
    void call(const ItemId& id, StorageCall call);
    // Writes a whole value to the source, and replies. `room` is given back once that is done.
    void put(const ItemId& id, std::string key, std::shared_ptr<Region> value, bool if_absent,
             WriteBudget::Room room);
    // Room for a value that is to be written; nullptr where there is none yet, and `then` gets it
    // later.
    WriteBudget::Room take_room(std::uint64_t bytes, std::function<void(WriteBudget::Room)> then);
    // Returns a function that replies ok, to be called once, on any thread.
    std::function<void()> reply_when_called(const ItemId& id);

    // Drops the gets of this request; what the source brings for them is not sent.
    void abandon(std::uint64_t request);
    // on_fetched does not run any more.
    void close();

    bool busy() const { return !fetches_.empty() || calls_ > 0; }

  private:
    // A callback that runs `then` on the session's thread, with this and the result, unless the
    // session is over. It keeps neither the thread nor the session alive.
    template <typename T, typename Then>
    Later<T> later(Then then);
    void fetched(std::uint64_t ticket, Outcome<Value> outcome);
    void end_call();

    const std::shared_ptr<CachedSource> source_;
    const std::weak_ptr<TaskThread> thread_;
    const std::shared_ptr<ClientRecord> client_;
    const std::shared_ptr<Sending> sending_;
    OnFetched on_fetched_;
    std::unordered_map<std::uint64_t, PendingGet> fetches_;  // by ticket
    std::uint64_t last_ticket_ = 0;
    std::uint64_t calls_ = 0;  // all that wait but are no fetches
};

template <typename T, typename Then>
Later<T> Awaiting::later(Then then) {
    return [on = thread_, weak = weak_from_this(), then](Outcome<T> outcome) {
        const auto thread = on.lock();
        if (thread == nullptr) {
            return;
        }
        thread->post([weak, then, outcome = std::move(outcome)]() mutable {
            const auto self = weak.lock();
            if (self == nullptr || self->client_->closed()) {
                return;
            }
            try {
                self->client_->moved();
                then(*self, std::move(outcome));
            } catch (const std::exception&) {  // for want of memory
                self->client_->doom();
            }
        });
    };
}

}  // namespace ucxstore

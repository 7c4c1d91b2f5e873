#include "sessions/awaiting.hpp"

#include <exception>
#include <utility>

#include "base/ensure.hpp"
#include "sessions/answer.hpp"

namespace ucxstore::sessions {
namespace {

// How long a change waits until all that its client has sent is read. A client that does not take
// its replies is not read from.
constexpr auto kCatchUp = std::chrono::seconds(2);
constexpr auto kCatchUpPause = std::chrono::milliseconds(2);

}  // namespace

// NOLINTNEXTLINE(readability-function-size): what a session is made of
Awaiting::Awaiting(const Storages& storages, std::weak_ptr<threads::TaskThread> thread,
                   std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
                   std::shared_ptr<Walkers> walkers, std::shared_ptr<threads::WorkerPool> readers,
                   OnFetched on_fetched, std::function<void()> on_ended)
    : source_(storages.source),
      decoded_(storages.decoded),
      thread_(std::move(thread)),
      client_(std::move(client)),
      sending_(std::move(sending)),
      walkers_(std::move(walkers)),
      readers_(std::move(readers)),
      on_fetched_(std::move(on_fetched)),
      on_ended_(std::move(on_ended)) {}

void Awaiting::fetch(PendingGet get) {
    const std::uint64_t ticket = ++last_ticket_;
    const PendingGet& kept = fetches_.emplace(ticket, std::move(get)).first->second;
    try {
        const auto place =
            std::make_shared<Hold>(client_->account()->hold_anyway(Held::fetches, 1));
        source_->fetch(kept.stored_key(), kept.stored_selection(),
                       later<Value>([ticket, place](Awaiting& self, cache::Outcome<Value> outcome) {
                           place->shrink(0);
                           self.fetched(ticket, std::move(outcome));
                       }),
                       client_->mandate()->whose());
    } catch (...) {
        fetches_.erase(ticket);  // the caller replies
        throw;
    }
}

void Awaiting::decode(PendingGet get, Value stored) {
    const std::uint64_t ticket = ++last_ticket_;
    get.note_decoded(true);
    const PendingGet& kept = fetches_.emplace(ticket, std::move(get)).first->second;
    try {
        const auto place =
            std::make_shared<Hold>(client_->account()->hold_anyway(Held::fetches, 1));
        decoded_->decode(
            {kept.key(), kept.recipe()}, std::move(stored),
            later<Value>([ticket, place](Awaiting& self, cache::Outcome<Value> outcome) {
                place->shrink(0);
                self.fetched(ticket, std::move(outcome));
            }),
            client_->mandate()->whose());
    } catch (...) {
        fetches_.erase(ticket);  // the caller replies
        throw;
    }
}

void Awaiting::fetched(std::uint64_t ticket, cache::Outcome<Value> outcome) {
    if (outcome.value != nullptr && !outcome.value->pieced()) {
        last_bytes_ = outcome.value->size();
    }
    auto node = fetches_.extract(ticket);
    on_fetched_(node.empty() ? std::nullopt : std::optional(std::move(node.mapped())),
                std::move(outcome));
}

// What a thread reads for a get, and what it is for.
struct Awaiting::Loading {
    std::shared_ptr<const memory::Region> value;
    PendingGet::Loaded result;
    std::exception_ptr failure;
};

void Awaiting::load(PendingGet get) {
    const std::uint64_t ticket = ++last_ticket_;
    const PendingGet& kept = loads_.emplace(ticket, std::move(get)).first->second;
    try {
        auto held = client_->account()->hold_anyway(Held::read_bytes, kept.next_is_read());
        const auto loading = std::make_shared<Loading>(
            Loading{kept.value(), {kept.next_pieces(), nullptr, std::move(held)}, nullptr});
        auto done = later<bool>([ticket, loading](Awaiting& self, const cache::Outcome<bool>&) {
            self.loaded(ticket, *loading);
        });
        readers_->post(
            [loading, done = std::move(done)] {
                try {
                    loading->result.owner = loading->value->locate(loading->result.pieces);
                } catch (const std::exception&) {
                    loading->failure = std::current_exception();
                }
                done({});
            },
            client_->mandate()->whose());
    } catch (const std::exception& error) {
        const auto node = loads_.extract(ticket);
        sending_->fail(node.mapped().id(), error, node.mapped().timed());
    }
}

void Awaiting::loaded(std::uint64_t ticket, Loading& loading) {
    auto node = loads_.extract(ticket);
    if (node.empty()) {
        return;  // the client has abandoned it
    }
    PendingGet& get = node.mapped();
    if (loading.failure == nullptr) {
        get.note_loaded(std::move(loading.result));
        return sending_->go_on(std::move(get));
    }
    try {
        std::rethrow_exception(loading.failure);
    } catch (const std::exception& error) {
        sending_->fail(get.id(), error, get.timed());
    }
}

bool Awaiting::fetches_enough() const {
    Account& account = *client_->account();
    if (source_ == nullptr && decoded_ == nullptr) {
        return false;
    }
    const std::uint64_t fetching = fetches_.size();
    const bool any = fetching > 0 || account.held(Held::fetched_bytes) > 0;
    return !account.has_room(Held::fetches, 1) ||
           (any && !account.has_room(Held::fetched_bytes, (fetching + 1) * last_bytes_));
}

bool Awaiting::may_keep(std::uint64_t bytes) const {
    Account& account = *client_->account();
    return account.held(Held::fetched_bytes) == 0 || account.has_room(Held::fetched_bytes, bytes);
}

void Awaiting::end_call(const ItemId& id) {
    const auto call = calls_.find(id.request);
    base::ensure(call != calls_.end(), "a call ends once");
    calls_.erase(call);
}

void Awaiting::requests(std::set<std::uint64_t>& into) const {
    into.insert(calls_.begin(), calls_.end());
    for (const auto& [ticket, get] : fetches_) {
        into.insert(get.id().request);
    }
}

void Awaiting::call(const ItemId& id, cache::StorageCall call, CallRoom room) {
    const std::uint64_t ticket = ++last_ticket_;
    auto wanted = std::make_shared<std::atomic<bool>>(true);
    asked_.emplace(ticket, Asked{id.request, wanted});
    begin_call(id);
    const Does does = changes(call) ? Does::change : Does::read;
    auto done = later<cache::CallResult>(
        [id, ticket, does, room = std::make_shared<CallRoom>(std::move(room))](
            Awaiting& self, cache::Outcome<cache::CallResult> outcome) {
            *room = {};
            self.asked_.erase(ticket);
            self.end_call(id);
            self.answer_to(id, does, answer_of(outcome.value));
        });
    auto moved = later<bool>([id, ticket](Awaiting& self, cache::Outcome<bool>) {
        if (self.asked_.contains(ticket)) {
            self.say_that_it_goes_on(id, 0);
        }
    });
    source_->call(
        std::move(call), std::move(done),
        [wanted = std::move(wanted), moved, bounds = client_->bounds()] {
            moved({});
            return wanted->load() && !bounds.expiry_fault();
        },
        client_->mandate()->whose());
}

void Awaiting::walk(const ItemId& id, std::shared_ptr<storage::Storage> storage,
                    cache::StorageCall call, CallRoom room) {
    const std::uint64_t ticket = ++last_ticket_;
    auto moved = later<std::uint64_t>(
        [id, ticket](Awaiting& self, const cache::Outcome<std::uint64_t>& outcome) {
            if (self.walks_.contains(ticket)) {
                self.say_that_it_goes_on(id, outcome.value);
            }
        });
    const auto held = std::make_shared<CallRoom>(std::move(room));
    auto done = later<Answer>([ticket, held](Awaiting& self, cache::Outcome<Answer> outcome) {
        self.walked(ticket, *held, std::move(outcome.value));
    });
    auto errand = std::make_shared<Errand>(
        std::move(storage), std::move(call), [moved](std::uint64_t keys) { moved({keys, {}}); },
        [done](Answer answer) { done({std::move(answer), {}}); }, [look = catch_up()] { look(); },
        client_->mandate());
    walks_.emplace(ticket, Walking{id, errand});
    if (!walkers_->start(errand)) {
        walked(ticket, *held, {protocol::Status::storage, "the server has no thread for it"});
    }
}

void Awaiting::walked(std::uint64_t ticket, CallRoom& room, Answer answer) {
    room = {};
    auto node = walks_.extract(ticket);
    if (!node.empty()) {  // else the client has abandoned it
        sending_->reply(node.mapped().id, answer.status, std::move(answer.payload));
    }
}

void Awaiting::answer_to(const ItemId& id, Does does, Answer answer) {
    // What the source brings after the end of the grant is not told. Of a change, the truth is.
    const bool told = answer.status == protocol::Status::ok && does == Does::change;
    if (auto fault = client_->bounds().expiry_fault();
        fault && !told && answer.status != protocol::Status::unknown) {
        answer = {protocol::Status::denied, std::move(*fault)};
    }
    sending_->reply(id, answer.status, std::move(answer.payload));
}

void Awaiting::say_that_it_goes_on(const ItemId& id, std::uint64_t keys) {
    if (sending_->has_room()) {  // a client that takes nothing waits for nothing
        sending_->refuse(id, {protocol::Status::going_on, keys, protocol::kAnyVersion});
    }
}

void Awaiting::operate(const ItemId& id, Operators& operators, Operators::Request request,
                       CallRoom room) {
    begin_call(id);
    const auto held = std::make_shared<CallRoom>(std::move(room));
    operators.ask(
        std::move(request),
        later<std::string>([id, held](Awaiting& self, cache::Outcome<std::string> outcome) {
            *held = {};
            self.end_call(id);
            const bool answered = outcome.failure.empty();
            self.sending_->reply(id, answered ? protocol::Status::ok : protocol::Status::storage,
                                 answered ? std::move(outcome.value) : std::move(outcome.failure));
        }));
}

void Awaiting::put(const ItemId& id, std::string key, std::shared_ptr<memory::Region> value,
                   bool if_absent, storage::WriteBudget::Room room) {
    const std::uint64_t ticket = ++last_ticket_;
    auto wanted = std::make_shared<std::atomic<bool>>(true);
    asked_.emplace(ticket, Asked{id.request, wanted});
    begin_call(id);
    const std::uint64_t bytes = value->size();
    std::shared_ptr<Hold> small;
    if (bytes <= protocol::kEagerBytes) {
        small = std::make_shared<Hold>(
            client_->account()->hold_anyway(Held::small_values, bytes + kValueBytes));
    }
    source_->write(
        key, std::move(value), if_absent,
        later<bool>([id, ticket, bytes, small, room = std::move(room)](
                        Awaiting& self, cache::Outcome<bool> outcome) {
            if (small != nullptr) {
                small->shrink(0);
            }
            self.asked_.erase(ticket);
            self.end_write(id, bytes, std::move(outcome));
        }),
        [wanted = std::move(wanted), bounds = client_->bounds()] {
            return wanted->load() && !bounds.expiry_fault();
        },
        client_->mandate()->whose());
}

void Awaiting::end_write(const ItemId& id, std::uint64_t bytes, cache::Outcome<bool> outcome) {
    end_call(id);
    if (!outcome.failure.empty()) {
        const protocol::Status status =
            outcome.unknown ? protocol::Status::unknown : protocol::Status::storage;
        return answer_to(id, Does::change, {status, std::move(outcome.failure)});
    }
    client_->count_set(bytes);
    sending_->reply(id, outcome.value ? protocol::Status::ok : protocol::Status::kept);
}

std::function<bool()> Awaiting::catch_up() {
    return [on = thread_, weak = weak_from_this()] {
        const base::TimePoint until = base::Clock::now() + kCatchUp;
        while (const auto thread = on.lock()) {
            bool there = false;
            bool all = false;
            thread->post_and_wait([&] {
                const auto self = weak.lock();
                if (self != nullptr && !self->client_->closed()) {
                    all = self->sending_->catch_up();
                    there = !self->client_->doomed() && !self->sending_->failed();
                }
            });
            if (!there || all || base::Clock::now() >= until) {
                return there && all;
            }
            std::this_thread::sleep_for(kCatchUpPause);
        }
        return false;
    };
}

void Awaiting::commit(const ItemId& id, std::shared_ptr<ArrivingValue> value) {
    const std::uint64_t ticket = ++last_ticket_;
    auto wanted = std::make_shared<std::atomic<bool>>(true);
    asked_.emplace(ticket, Asked{id.request, wanted});
    begin_call(id);
    ArrivingValue& arrived = *value;
    const std::uint64_t bytes = arrived.total();
    arrived.commit_later(
        [wanted = std::move(wanted), look = catch_up()](bool surely) {
            return wanted->load() && (!surely || (look() && wanted->load()));
        },
        [value = std::move(value),
         done = later<bool>([id, ticket, bytes](Awaiting& self, cache::Outcome<bool> outcome) {
             self.asked_.erase(ticket);
             self.end_write(id, bytes, std::move(outcome));
         })](bool written, std::string failure) { done({written, std::move(failure)}); },
        client_->mandate());
}

storage::WriteBudget::Room Awaiting::take_room(
    storage::WriteBudget& budget, std::uint64_t bytes,
    std::function<void(storage::WriteBudget::Room)> then) {
    const auto admitted = later<storage::WriteBudget::Room>(
        [then = std::move(then)](Awaiting&, cache::Outcome<storage::WriteBudget::Room> outcome) {
            then(std::move(outcome.value));
        });
    return budget.take(
        bytes, [admitted](storage::WriteBudget::Room room) { admitted({std::move(room), {}}); },
        client_->origin());
}

storage::WriteBudget::Room Awaiting::take_room_now(std::uint64_t bytes) {
    return client_->account()->has_room(Held::small_values, bytes + kValueBytes)
               ? source_->writes().take_now(bytes, client_->origin())
               : nullptr;
}

std::function<void()> Awaiting::reply_when_called(const ItemId& id) {
    begin_call(id);
    return [done = later<bool>([id](Awaiting& self, cache::Outcome<bool>) {
                self.end_call(id);
                self.sending_->reply(id, protocol::Status::ok);
            })] { done({}); };
}

void Awaiting::abandon(std::uint64_t request) {
    const auto concerned = [request](const auto& entry) {
        return entry.second.id().request == request;
    };
    std::erase_if(fetches_, concerned);
    std::erase_if(loads_, concerned);
    for (const auto& [ticket, call] : asked_) {
        if (call.request == request) {
            *call.wanted = false;
        }
    }
    std::erase_if(walks_, [request](const auto& entry) {
        if (entry.second.id.request != request) {
            return false;
        }
        entry.second.errand->stop();
        return true;
    });
}

void Awaiting::close() {
    on_fetched_ = nullptr;
    on_ended_ = nullptr;
    fetches_.clear();
    loads_.clear();
    for (const auto& [ticket, call] : asked_) {
        *call.wanted = false;
    }
    for (const auto& [ticket, walk] : walks_) {
        walk.errand->stop();
    }
    walks_.clear();
}

}  // namespace ucxstore::sessions

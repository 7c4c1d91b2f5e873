#include "server/awaiting.hpp"

#include <utility>

#include "base/ensure.hpp"
#include "server/answer.hpp"

namespace ucxstore {
namespace {

using wire::Status;

// How many calls of one client may wait at once. More are refused as busy.
constexpr std::uint64_t kMaxCalls = 64 * 1024;

}  // namespace

Awaiting::Awaiting(std::shared_ptr<CachedSource> source, std::weak_ptr<TaskThread> thread,
                   std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
                   OnFetched on_fetched)
    : source_(std::move(source)),
      thread_(std::move(thread)),
      client_(std::move(client)),
      sending_(std::move(sending)),
      on_fetched_(std::move(on_fetched)) {}

void Awaiting::fetch(PendingGet get) {
    const std::uint64_t ticket = ++last_ticket_;
    const PendingGet& kept = fetches_.emplace(ticket, std::move(get)).first->second;
    try {
        source_->fetch(kept.key(), kept.selection(),
                       later<Value>([ticket](Awaiting& self, Outcome<Value> outcome) {
                           self.fetched(ticket, std::move(outcome));
                       }));
    } catch (...) {
        fetches_.erase(ticket);  // the caller replies
        throw;
    }
}

void Awaiting::fetched(std::uint64_t ticket, Outcome<Value> outcome) {
    auto node = fetches_.extract(ticket);
    if (!node.empty()) {  // else the client has abandoned it
        on_fetched_(std::move(node.mapped()), std::move(outcome));
    }
}

void Awaiting::end_call() {
    ensure(calls_ > 0, "a call ends once");
    --calls_;
}

void Awaiting::call(const ItemId& id, StorageCall call) {
    if (calls_ >= kMaxCalls) {
        sending_->reply(id, Status::busy);
        return;
    }
    ++calls_;
    source_->call(std::move(call),
                  later<CallResult>([id](Awaiting& self, Outcome<CallResult> outcome) {
                      self.end_call();
                      Answer answer = answer_of(outcome.value);
                      self.sending_->reply(id, answer.status, std::move(answer.payload));
                  }));
}

void Awaiting::put(const ItemId& id, std::string key, std::shared_ptr<Region> value, bool if_absent,
                   WriteBudget::Room room) {
    ++calls_;
    const std::uint64_t bytes = value->size();
    source_->write(
        key, std::move(value), if_absent,
        later<bool>([id, bytes, room = std::move(room)](Awaiting& self, Outcome<bool> outcome) {
            self.end_call();
            if (!outcome.failure.empty()) {
                self.sending_->reply(id, Status::storage, std::move(outcome.failure));
                return;
            }
            self.client_->count_set(bytes);
            self.sending_->reply(id, outcome.value ? Status::ok : Status::kept);
        }));
}

WriteBudget::Room Awaiting::take_room(std::uint64_t bytes,
                                      std::function<void(WriteBudget::Room)> then) {
    const auto admitted = later<WriteBudget::Room>(
        [then = std::move(then)](Awaiting&, Outcome<WriteBudget::Room> outcome) {
            then(std::move(outcome.value));
        });
    return source_->writes().take(
        bytes, [admitted](WriteBudget::Room room) { admitted({std::move(room), {}}); });
}

std::function<void()> Awaiting::reply_when_called(const ItemId& id) {
    ++calls_;
    return [done = later<bool>([id](Awaiting& self, Outcome<bool>) {
                self.end_call();
                self.sending_->reply(id, Status::ok);
            })] { done({}); };
}

void Awaiting::abandon(std::uint64_t request) {
    std::erase_if(fetches_,
                  [request](const auto& entry) { return entry.second.id().request == request; });
}

void Awaiting::close() {
    on_fetched_ = nullptr;
    fetches_.clear();
}

}  // namespace ucxstore

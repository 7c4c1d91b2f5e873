// What of a session waits for a remote storage: gets, other requests, and values that are put. It
// is finished by a task for the progress thread, unless the session has gone, or the client has
// given it up.
#include <utility>

#include "server/answer.hpp"
#include "server/session.hpp"

namespace ucxstore {
namespace {

using wire::Status;

// Requests other than gets that one client may have waiting, before it is told to come again.
constexpr std::uint64_t kMaxCalls = 64 * 1024;

}  // namespace

void Session::fetch(Waiting& waiting) {
    const std::uint64_t ticket = ++last_ticket_;
    const wire::GetItem& get = fetching_.emplace(ticket, std::move(waiting)).first->second.get;
    using Value = CachedSource::Value;
    holdings_.remote->fetch(get.key, get.selection,
                            later<Value>([ticket](Session& self, Outcome<Value> outcome) {
                                self.fetched(ticket, std::move(outcome));
                            }));
}

void Session::fetched(std::uint64_t ticket, Outcome<std::shared_ptr<const Region>> outcome) {
    auto node = fetching_.extract(ticket);
    if (node.empty()) {
        return;  // the client has given it up
    }
    last_moved_ = Clock::now();
    Waiting& waiting = node.mapped();
    if (!outcome.failure.empty()) {
        reply(waiting.request, waiting.item, Status::storage, std::move(outcome.failure));
    } else if (begin(waiting, std::move(outcome.value))) {
        fetched_.push_back(std::move(waiting));
    }
    pump();
}

void Session::ask(const wire::RequestHeader& header, Ask ask) {
    if (calls_ >= kMaxCalls) {
        reply(header.request, header.first, Status::busy);
        return;
    }
    ++calls_;
    holdings_.remote->ask(
        std::move(ask), later<Told>([header](Session& self, Outcome<Told> outcome) {
            --self.calls_;
            self.last_moved_ = Clock::now();
            Answer answer = answer_of(outcome.value);
            self.reply(header.request, header.first, answer.status, std::move(answer.payload));
        }));
}

// False where the value has to wait for it.
bool Session::take_room(const wire::ValueHeader& header, Arriving& value) {
    WriteBudget& writes = holdings_.remote->writes();
    if (header.total <= Request::kEagerBytes) {
        value.room = writes.take_now(header.total);  // it has come already
        return true;
    }
    const auto admitted =
        later<WriteBudget::Room>([id = ArrivingId{header.request, header.item}](
                                     Session& self, Outcome<WriteBudget::Room> outcome) {
            self.admit(id, std::move(outcome.value));
        });
    value.room = writes.take(
        header.total, [admitted](WriteBudget::Room room) { admitted({std::move(room), {}}); });
    if (value.room == nullptr) {
        value.waits = worker_.get();
        count_waiting();
    }
    return value.room != nullptr;
}

void Session::admit(const ArrivingId& id, WriteBudget::Room room) {
    const auto found = arriving_.find(id);
    if (found == arriving_.end() || found->second->held.empty()) {
        return;  // the client has given it up
    }
    const auto value = found->second;
    last_moved_ = Clock::now();
    value->room = std::move(room);
    take_memory(value->held.front().header, *value);
    for (Held& one : value->held) {
        if (fill(one.header, value, std::as_bytes(std::span(one.data)), one.descriptor)) {
            one.descriptor = nullptr;
        }
    }
    value->drop_held();
    value->waits = nullptr;
    count_waiting();
}

void Session::put(const wire::ValueHeader& header, Arriving& value) {
    ++calls_;
    holdings_.remote->write(value.key, std::exchange(value.remote, nullptr), value.if_absent,
                            later<bool>([header, room = std::exchange(value.room, nullptr)](
                                            Session& self, Outcome<bool> outcome) {
                                --self.calls_;
                                self.last_moved_ = Clock::now();
                                if (!outcome.failure.empty()) {
                                    self.reply(header.request, header.item, Status::storage,
                                               std::move(outcome.failure));
                                    return;
                                }
                                self.counters_.count_set(*self.client_, header.total);
                                self.reply(header.request, header.item,
                                           outcome.value ? Status::ok : Status::kept);
                            }));
}

}  // namespace ucxstore

// Values on their way in: what a client sends of them, until the storage has them whole.
#include <algorithm>
#include <new>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "server/answer.hpp"
#include "server/session.hpp"

namespace ucxstore {
namespace {

using wire::Status;

// What one client may be sending at once, before it is refused.
constexpr std::size_t kMaxArriving = 1024;
constexpr std::size_t kMaxRefused = 2 * kMaxArriving;

// Values from here on are written past the caches; whoever reads them is another process.
constexpr std::uint64_t kPastCaches = 256 << 10;

}  // namespace

class Session::Receive : public Request {
  public:
    Receive(std::shared_ptr<Session> session, std::shared_ptr<Arriving> value,
            const wire::ValueHeader& header)
        : session_(std::move(session)), value_(std::move(value)), header_(header) {
        ++session_->active_receives_;
    }
    ~Receive() override { --session_->active_receives_; }

    void completed(ucs_status_t status) override {
        session_->last_moved_ = Clock::now();
        try {
            session_->segment_arrived(header_, value_, status);
        } catch (const std::exception&) {  // for want of memory; none may pass through UCX
            session_->doom();
        }
    }

  private:
    const std::shared_ptr<Session> session_;
    const std::shared_ptr<Arriving> value_;
    const wire::ValueHeader header_;
};

void Session::accept(const wire::ValueHeader& header, Arriving& value) {
    const auto refuse = [&](Status status, std::string text = {}) {
        reply(header.request, header.item, status, std::move(text));
    };
    if (read_only_ && !wire::space_of(value.key) && !wire::is_note(value.key)) {
        return refuse(Status::read_only);
    }
    if (auto fault = wire::key_fault(value.key)) {
        return refuse(Status::invalid_key, std::move(*fault));
    }
    if (arriving_.size() > kMaxArriving) {
        return refuse(Status::busy);
    }
    try {
        value.home = home_of(value.key);
    } catch (const std::exception& error) {
        return refuse(status_of(error), error.what());
    }
    if (value.home == nullptr && !take_room(header, value)) {
        return;
    }
    take_memory(header, value);
}

void Session::take_memory(const wire::ValueHeader& header, Arriving& value) {
    try {
        if (value.home == nullptr) {
            value.remote = holdings_.remote->receive(header.total);
        } else {
            value.incoming = value.home->receive(value.key, header.total);
        }
    } catch (const std::exception& error) {
        refuse(header, error);
    }
}

void Session::refuse(const wire::ValueHeader& header, const std::exception& error) {
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    reply(header.request, header.item, status_of(error),
          no_memory ? "not enough memory" : error.what());
}

void Session::count_waiting() {
    waits_for_room_ = static_cast<std::uint64_t>(std::ranges::count_if(
        arriving_, [](const auto& entry) { return entry.second->waits != nullptr; }));
}

Session::Arriving::~Arriving() { drop_held(); }

// Their sender is told that they will not be received.
void Session::Arriving::drop_held() {
    for (const Held& one : held) {
        if (one.descriptor != nullptr) {
            ucp_am_data_release(waits->get(), one.descriptor);
        }
    }
    held.clear();
}

// Where a part of it goes that is about to come; nullptr where it was refused.
std::byte* Session::Arriving::prepare(std::uint64_t offset, std::uint64_t length) {
    if (refused) {
        return nullptr;
    }
    if (remote != nullptr) {
        return remote->data() + offset;
    }
    if (incoming == nullptr) {
        return nullptr;
    }
    incoming->prepare(offset, length);
    return incoming->data() + offset;
}

std::shared_ptr<Session::Arriving> Session::arriving(const wire::ValueHeader& header,
                                                     const std::string& key) {
    if (std::ranges::find(abandoned_, header.request) != abandoned_.end()) {
        return nullptr;
    }
    const auto [at, added] = arriving_.try_emplace({header.request, header.item});
    if (added) {
        if (arriving_.size() > kMaxRefused) {  // a client that heeds kMaxSends never gets there
            throw Error(ErrorKind::protocol, "more values at once than a server takes");
        }
        at->second = std::make_shared<Arriving>();
        at->second->key = key;
        at->second->if_absent = header.if_absent != 0;
    }
    return at->second;
}

bool Session::on_value(const wire::ValueHeader& header, std::string key,
                       std::span<const std::byte> data, void* descriptor) {
    last_moved_ = Clock::now();
    if (endpoint_ == nullptr) {
        throw Error(ErrorKind::protocol, "a value before the first ping");
    }
    const auto value = arriving(header, key);
    if (value == nullptr) {
        return false;  // of a request that was abandoned, which may come before its values do
    }
    if (value->key != key ||
        !value->segments.add(header.total, header.segment, header.offset, header.length)) {
        arriving_.erase({header.request, header.item});
        throw Error(ErrorKind::protocol, "a segment that does not fit its value");
    }
    if (!std::exchange(value->accepted, true)) {
        accept(header, *value);
    }
    if (value->waits != nullptr) {
        value->held.push_back(
            {header, descriptor, {reinterpret_cast<const char*>(data.data()), data.size()}});
        return descriptor != nullptr;
    }
    fill(header, value, data, descriptor);
    return false;
}

bool Session::fill(const wire::ValueHeader& header, const std::shared_ptr<Arriving>& value,
                   std::span<const std::byte> data, void* descriptor) {
    try {
        std::byte* target = value->prepare(header.offset, header.length);
        if (target != nullptr && descriptor != nullptr) {
            auto receive = std::make_unique<Receive>(self(), value, header);
            receive->write = header.total >= kPastCaches ? Write::past_caches : Write::cached;
            receive->pieces.push_back({target, header.length});
            Request::receive(std::move(receive), *worker_, descriptor);
            return true;
        }
        if (target != nullptr) {
            std::ranges::copy(data, target);
        }
    } catch (const std::exception& error) {
        value->refused = true;  // what UCX is still writing to goes with the last of it
        refuse(header, error);
    }
    segment_arrived(header, value, UCS_OK);  // one that was refused is only counted
    return false;
}

void Session::segment_arrived(const wire::ValueHeader& header,
                              const std::shared_ptr<Arriving>& value, ucs_status_t status) {
    if (closed_) {
        return;
    }
    const ArrivingId id{header.request, header.item};
    if (status != UCS_OK) {
        arriving_.erase(id);
        return;
    }
    value->received += header.length;
    if (value->received < value->segments.total() || arriving_.erase(id) == 0) {
        return;  // more is to come, or the client has given it up
    }
    if (value->refused || (value->remote == nullptr && value->incoming == nullptr)) {
        return;
    }
    if (value->remote != nullptr) {
        put(header, *value);
        return;
    }
    try {
        const bool written = value->incoming->commit(value->if_absent);
        value->incoming.reset();
        counters_.count_set(*client_, value->segments.total());
        reply(header.request, header.item, written ? Status::ok : Status::kept);
    } catch (const std::exception& error) {
        reply(header.request, header.item, status_of(error), error.what());
    }
}

}  // namespace ucxstore

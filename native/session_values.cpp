// Values on their way in: what a client sends of them, until the backing has them whole.
#include <algorithm>
#include <utility>

#include "answer.hpp"
#include "keys.hpp"
#include "session.hpp"
#include "status.hpp"

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
    std::shared_ptr<Session> session;
    std::shared_ptr<Arriving> value;
    wire::ValueHeader header;

    void completed(ucs_status_t status) override {
        --session->active_receives_;
        session->last_moved_ = Clock::now();
        session->segment_arrived(header, value, status);
    }
};

void Session::accept(const wire::ValueHeader& header, Arriving& value) {
    const auto refuse = [&](Status status, std::string text = {}) {
        reply(header.request, header.item, status, std::move(text));
    };
    if (read_only_ && !wire::space_of(value.key)) {
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
        reply(header.request, header.item, status_of(error), error.what());
    }
}

void Session::count_waiting() {
    waits_for_room_ = static_cast<std::uint64_t>(std::ranges::count_if(
        arriving_, [](const auto& entry) { return entry.second->waits != nullptr; }));
}

// Its sender is told that they will not be received.
Session::Arriving::~Arriving() {
    for (const Held& one : held) {
        if (one.descriptor != nullptr) {
            ucp_am_data_release(waits->get(), one.descriptor);
        }
    }
}

// Where a part of it goes that is about to come; nullptr where it was refused.
std::byte* Session::Arriving::prepare(std::uint64_t offset, std::uint64_t length) {
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

void Session::fill(const wire::ValueHeader& header, const std::shared_ptr<Arriving>& value,
                   std::span<const std::byte> data, void* descriptor) {
    std::byte* target = value->prepare(header.offset, header.length);
    if (target == nullptr) {
        segment_arrived(header, value, UCS_OK);  // refused: UCX drops what we do not receive
        return;
    }
    if (descriptor == nullptr) {
        std::copy(data.begin(), data.end(), target);
        segment_arrived(header, value, UCS_OK);
        return;
    }
    auto receive = std::make_unique<Receive>();
    receive->session = shared_from_this();
    receive->value = value;
    receive->header = header;
    receive->write = header.total >= kPastCaches ? Write::past_caches : Write::cached;
    receive->pieces.push_back({target, header.length});
    ++active_receives_;
    Request::receive(std::move(receive), *worker_, descriptor);
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
    if (value->remote != nullptr) {
        put(header, *value);
        return;
    }
    if (value->incoming == nullptr) {
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

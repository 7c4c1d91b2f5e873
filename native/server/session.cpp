#include "server/session.hpp"

#include <utility>
#include <variant>

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "server/answer.hpp"

namespace ucxstore {
namespace {

using wire::Status;

// How many gets one client may have waiting. More end its session.
constexpr std::size_t kMaxGets = 1'000'000;

// After this long without progress on what is in flight to or from a client, its session ends.
constexpr auto kStallTimeout = std::chrono::seconds(60);

ItemId id_of(const wire::RequestHeader& header) { return {header.request, header.first}; }

}  // namespace

Session::Session(const Service& service, std::weak_ptr<TaskThread> thread, const wire::Token& token,
                 std::shared_ptr<ClientRecord> client, std::shared_ptr<Sending> sending,
                 Receiver& receiver)
    : service_(service),
      token_(token),
      client_(std::move(client)),
      sending_(std::move(sending)),
      awaiting_(
          std::make_shared<Awaiting>(service_.storages.source, std::move(thread), client_, sending_,
                                     [this](PendingGet get, Outcome<Awaiting::Value> outcome) {
                                         fetched(std::move(get), std::move(outcome));
                                     })),
      arriving_(std::make_shared<Arriving>(receiver, service_.storages, service_.read_only, client_,
                                           sending_, awaiting_)) {
    sending_->set_on_sent([this] { pump(); });
}

void Session::close() {
    client_->close();
    gets_.clear();
    awaiting_->close();
    arriving_->close();
    sending_->close();  // last: over UCX it ends the transfers of the others, too
}

Session::Look Session::look(TimePoint now) {
    const TimePoint stalls =
        awaits_client() ? client_->last_moved() + kStallTimeout : TimePoint::max();
    if (!client_->doomed() && !sending_->failed() && now <= stalls) {
        return {false, stalls};
    }
    if (busy() || sending_->failed()) {
        ++service_.counters->sessions_lost;
        const bool stalled = !client_->doomed() && !sending_->failed();
        client_->report(log::warning, log::Kind::lost,
                        stalled ? "nothing has moved for 60 s" : "it is gone");
    } else {
        client_->report(log::info, log::Kind::closed);
    }
    return {true, TimePoint::max()};
}

bool Session::busy() const {
    return awaits_client() || awaiting_->busy() || arriving_->awaits_room() ||
           sending_->values() + gets_.size() > 0;
}

void Session::on_request(const wire::RequestHeader& header, std::span<const std::byte> body) {
    switch (header.op) {
        case wire::Op::ping:
            return on_ping(header);
        case wire::Op::get:
            return on_get(header, body);
        case wire::Op::abandon:
            return abandon(header.request);
        case wire::Op::stats:
            return sending_->reply(id_of(header), Status::ok, service_.stats());
        case wire::Op::begin_space:
        case wire::Op::renew_space:
        case wire::Op::end_space:
            return on_space(header, body);
        default:
            return on_other(header, body);
    }
}

void Session::on_ping(const wire::RequestHeader& header) {
    sending_->reply(id_of(header), Status::ok);
}

void Session::on_get(const wire::RequestHeader& header, std::span<const std::byte> body) {
    wire::Reader reader(body);
    for (std::uint32_t i = 0; i < header.count; ++i) {
        if (gets_.size() >= kMaxGets) {
            throw Error(ErrorKind::protocol, "more requests at once than a server takes");
        }
        gets_.emplace_back(ItemId{header.request, header.first + i}, reader.get_item(),
                           (header.flags & wire::kSendBytes) != 0);
    }
    pump();
}

bool Session::on_value(const wire::ValueHeader& header, const std::string& key,
                       std::span<const std::byte> data, Receiver::Parcel parcel) {
    return arriving_->receive(header, key, data, parcel);
}

void Session::on_file(const wire::ValueHeader& header, const std::string& key, Fd file) {
    arriving_->receive_file(header, key, std::move(file));
}

void Session::pump() {
    if (std::exchange(pumping_, true)) {
        return;  // a send that completed at once; the loop below goes on
    }
    while (!client_->closed() && sending_->has_room()) {
        if (sending_->send_next()) {
            continue;
        }
        if (gets_.empty() || awaiting_->fetches_enough()) {
            break;
        }
        PendingGet next = std::move(gets_.front());
        gets_.pop_front();
        open(std::move(next));
    }
    pumping_ = false;
    client_->note_waiting(gets_.size() + sending_->values());
}

// Sends the value if it is at hand, else fetches it.
void Session::open(PendingGet get) {
    client_->count_get();
    const ItemId id = get.id();
    if (auto fault = wire::key_fault(get.key())) {
        sending_->reply(id, Status::invalid_key, std::move(*fault));
        return;
    }
    try {
        const auto storage = service_.storages.storage_of(get.key());
        auto value = storage ? storage->find(get.key())
                             : service_.storages.source->find(get.key(), get.selection());
        if (value == nullptr && storage == nullptr) {
            awaiting_->fetch(std::move(get));
        } else {
            send(std::move(get), std::move(value));
        }
    } catch (const std::exception& error) {
        sending_->reply(id, status_of(error), error.what());
    }
}

void Session::send(PendingGet get, std::shared_ptr<const Region> value) {
    const auto refusal = get.open(std::move(value));
    if (!refusal) {
        if (!sending_->show(get)) {
            sending_->add(std::move(get));
        }
        return;
    }
    if (refusal->status == Status::missing) {
        client_->count_missing();
    }
    sending_->refuse(get.id(), *refusal);
}

void Session::fetched(PendingGet get, Outcome<Awaiting::Value> outcome) {
    if (outcome.failure.empty()) {
        send(std::move(get), std::move(outcome.value));
    } else {
        sending_->reply(get.id(), Status::storage, std::move(outcome.failure));
    }
    pump();
}

void Session::abandon(std::uint64_t request) {
    std::erase_if(gets_, [request](const PendingGet& one) { return one.id().request == request; });
    sending_->abandon(request);
    awaiting_->abandon(request);
    arriving_->abandon(request);
}

// Begins, renews or ends a scratch space, for its owner.
void Session::on_space(const wire::RequestHeader& header, std::span<const std::byte> body) {
    const SpaceRequest request = read_space_request(header.op, body);
    const ItemId id = id_of(header);
    if (!wire::is_space_name(request.name)) {
        sending_->reply(id, Status::invalid_key, "is no name of a scratch space");
        return;
    }
    try {
        Spaces& spaces = service_.storages.offered_spaces();
        if (header.op == wire::Op::end_space) {
            spaces.end(request.name, awaiting_->reply_when_called(id));
            return;
        }
        if (header.op == wire::Op::begin_space) {
            spaces.begin(request.name, request.quota, request.timeout);
        } else {
            spaces.renew(request.name);
        }
        sending_->reply(id, Status::ok);
    } catch (const std::exception& error) {
        sending_->reply(id, status_of(error), error.what());
    }
}

// Requests that are calls to a storage, which answers at once, or to the source, which does later.
void Session::on_other(const wire::RequestHeader& header, std::span<const std::byte> body) {
    std::variant<StorageCall, Answer> read = read_call(service_.read_only, header, body);
    if (auto* call = std::get_if<StorageCall>(&read)) {
        std::shared_ptr<Storage> storage;
        try {
            storage = service_.storages.storage_of(key_or_prefix_of(*call));
        } catch (const Error& error) {
            sending_->reply(id_of(header), status_of(error), error.what());
            return;
        }
        if (storage == nullptr) {
            awaiting_->call(id_of(header), std::move(*call));
            return;
        }
        read = answer_of(*storage, *call);
    }
    auto& answer = std::get<Answer>(read);
    sending_->reply(id_of(header), answer.status, std::move(answer.payload));
}

}  // namespace ucxstore

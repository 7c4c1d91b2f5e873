#include "server/session.hpp"

#include <utility>
#include <variant>

#include "base/ensure.hpp"
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

// How long UCX may take to let go of memory once the endpoint was closed by force.
constexpr auto kReleaseTimeout = std::chrono::seconds(5);

ItemId id_of(const wire::RequestHeader& header) { return {header.request, header.first}; }

}  // namespace

Session::Session(std::unique_ptr<Worker> worker, Storages storages,
                 std::weak_ptr<Progress> progress, Counters& counters, bool read_only,
                 const wire::Token& token, const std::string& address, const std::string& peer)
    : Peer(std::move(worker), kReleaseTimeout),
      storages_(std::move(storages)),
      counters_(counters),
      read_only_(read_only),
      token_(token),
      address_(address),
      client_(std::make_shared<ClientRecord>(counters, peer)),
      sending_(std::make_shared<Sending>(*worker_, token, client_, [this] { pump(); })),
      awaiting_(
          std::make_shared<Awaiting>(storages_.source, std::move(progress), client_, sending_,
                                     [this](PendingGet get, Outcome<Awaiting::Value> outcome) {
                                         fetched(std::move(get), std::move(outcome));
                                     })),
      arriving_(std::make_shared<Arriving>(*worker_, storages_, read_only, client_, sending_,
                                           awaiting_)) {
    Endpoint::check_address(*worker_, address);
    worker_->on_message(static_cast<unsigned>(wire::Message::request), &on_request_message, this);
    worker_->on_message(static_cast<unsigned>(wire::Message::value), &on_value_message, this);
}

Session::~Session() {
    close();
    ensure(worker_ == nullptr || !worker_->busy(), "UCX has let go of a session that goes");
}

void Session::meet() {
    if (!first_ping_ || sending_->connected() || client_->closed()) {
        return;
    }
    try {
        sending_->connect(address_);
        on_ping(*first_ping_);
    } catch (const std::exception&) {
        client_->doom();
    }
}

void Session::close() {
    if (begin_close()) {
        client_->close();
        gets_.clear();
        awaiting_->close();
        arriving_->close();
        sending_->close();  // last: closing the endpoint ends the transfers of the others, too
    }
}

TimePoint Session::tick(Progress&, TimePoint now) {
    if (closed()) {
        return TimePoint::max();
    }
    meet();
    const TimePoint stalls =
        awaits_client() ? client_->last_moved() + kStallTimeout : TimePoint::max();
    if (client_->doomed() || sending_->failed() || now > stalls) {
        if (busy() || sending_->failed()) {
            ++counters_.sessions_lost;
            const bool stalled = !client_->doomed() && !sending_->failed();
            client_->report(log::warning, log::Kind::lost,
                            stalled ? "nothing has moved for 60 s" : "it is gone");
        } else {
            client_->report(log::info, log::Kind::closed);
        }
        close();
        return TimePoint::max();
    }
    return stalls;
}

bool Session::busy() const {
    return awaits_client() || awaiting_->busy() || arriving_->awaits_room() ||
           sending_->values() + gets_.size() > 0;
}

template <typename Header, typename Handle>
ucs_status_t Session::dispatch(const void* header, std::size_t header_size, Handle handle) {
    const auto decoded = wire::read_header<Header>(header, header_size);
    if (client_->closed() || !decoded || decoded->token != token_) {
        ++counters_.messages_refused;
        return UCS_OK;
    }
    try {
        client_->moved();
        handle(*decoded);
    } catch (const std::exception& error) {  // none may pass through UCX
        client_->report(log::warning, log::Kind::refused, error.what());
        ++counters_.messages_refused;
        client_->doom();
    }
    return UCS_OK;
}

ucs_status_t Session::on_request_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param) {
    auto* session = static_cast<Session*>(self);
    return session->dispatch<wire::RequestHeader>(
        header, header_size, [&](const wire::RequestHeader& decoded) {
            if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || size > wire::kMaxRequestBytes) {
                throw Error(ErrorKind::protocol, "a request that is too large");
            }
            session->on_request(decoded, {static_cast<const std::byte*>(data), size});
        });
}

ucs_status_t Session::on_value_message(void* self, const void* header, std::size_t header_size,
                                       void* data, std::size_t size,
                                       const ucp_am_recv_param_t* param) {
    auto* session = static_cast<Session*>(self);
    bool kept = false;
    const ucs_status_t status = session->dispatch<wire::ValueHeader>(
        header, header_size, [&](const wire::ValueHeader& decoded) {
            const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
            const std::size_t key_size = header_size - sizeof(decoded);
            if (size != decoded.length || key_size > wire::kMaxKeyBytes) {
                throw Error(ErrorKind::protocol, "a value that is not as long as it says");
            }
            const std::string key(static_cast<const char*>(header) + sizeof(decoded), key_size);
            const std::span<const std::byte> bytes(
                rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size);
            kept = session->on_value(decoded, key, bytes, rendezvous ? data : nullptr);
        });
    return kept ? UCS_INPROGRESS : status;
}

void Session::on_request(const wire::RequestHeader& header, std::span<const std::byte> body) {
    if (!sending_->connected()) {
        if (header.op != wire::Op::ping) {
            throw Error(ErrorKind::protocol, "a request before the first ping");
        }
        first_ping_ = header;
        return;
    }
    switch (header.op) {
        case wire::Op::ping:
            return on_ping(header);
        case wire::Op::get:
            return on_get(header, body);
        case wire::Op::abandon:
            return abandon(header.request);
        case wire::Op::stats:
            return sending_->reply(
                id_of(header), Status::ok,
                counters_.to_json(storages_.spaces ? storages_.spaces->counts()
                                                   : std::vector<SpaceCounts>()));
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
        gets_.emplace_back(ItemId{header.request, header.first + i}, reader.get_item());
    }
    pump();
}

bool Session::on_value(const wire::ValueHeader& header, const std::string& key,
                       std::span<const std::byte> data, void* descriptor) {
    if (!sending_->connected()) {
        throw Error(ErrorKind::protocol, "a value before the first ping");
    }
    return arriving_->receive(header, key, data, descriptor);
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
        const auto storage = storages_.storage_of(get.key());
        auto value =
            storage ? storage->find(get.key()) : storages_.source->find(get.key(), get.selection());
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
        sending_->add(std::move(get));
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
        Spaces& spaces = storages_.offered_spaces();
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
    std::variant<StorageCall, Answer> read = read_call(read_only_, header, body);
    if (auto* call = std::get_if<StorageCall>(&read)) {
        std::shared_ptr<Storage> storage;
        try {
            storage = storages_.storage_of(key_or_prefix_of(*call));
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

#include "sessions/session.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "sessions/answer.hpp"

namespace ucxstore::sessions {
namespace {

// After this long without progress on what is in flight to or from a client, its session ends.
constexpr auto kStallTimeout = std::chrono::seconds(60);

// So long after the end of its grant, a client is still told so. Then its session ends, and what is
// still under way.
constexpr auto kAfterGrant = std::chrono::seconds(10);

// A clock that was set may bring the end of a grant nearer.
constexpr auto kGrantLooks = std::chrono::minutes(1);

// How often a client is told of its requests that wait for the source, and of how many: less than
// any time-out that a client has, and few enough messages.
constexpr auto kTellEvery = std::chrono::milliseconds(250);
constexpr std::size_t kMostTold = 4096;

// How often it is looked for room that other sessions of the origin have given back.
constexpr auto kTryEvery = std::chrono::milliseconds(100);

// What is no reply goes under this id, which no request has.
constexpr ItemId kNoRequest{0, 0};

ItemId id_of(const protocol::RequestHeader& header) { return {header.request, header.first}; }

// How long the reply to a call can be, about. A key takes at least a byte of the request, and eight
// of the reply.
std::uint64_t longest_reply(const protocol::RequestHeader& header, std::size_t body_bytes) {
    const std::uint64_t payload =
        header.op == protocol::Op::list ? protocol::kPageBytes
        : header.op == protocol::Op::stat
            ? sizeof(std::uint64_t) * std::min<std::uint64_t>(header.count, body_bytes)
            : 0;
    return std::min<std::uint64_t>(payload, protocol::kPageBytes) + protocol::kMaxErrorBytes;
}

base::RequestKind kind_of(protocol::Op op) {
    switch (op) {
        case protocol::Op::stat:
            return base::RequestKind::stat;
        case protocol::Op::list:
        case protocol::Op::measure:
            return base::RequestKind::list;
        case protocol::Op::remove:
        case protocol::Op::remove_prefix:
            return base::RequestKind::remove;
        default:
            return base::RequestKind::other;
    }
}

}  // namespace

Session::Session(const Service& service, std::weak_ptr<threads::TaskThread> thread,
                 const protocol::Token& token, std::shared_ptr<ClientRecord> client,
                 std::shared_ptr<Sending> sending, Receiver& receiver, Turns::Seat& seat)
    : service_(service),
      token_(token),
      client_(std::move(client)),
      sending_(std::move(sending)),
      awaiting_(std::make_shared<Awaiting>(
          service_.storages, std::move(thread), client_, sending_, service_.walkers,
          service_.readers,
          [this](std::optional<PendingGet> get, cache::Outcome<Awaiting::Value> outcome) {
              fetched(std::move(get), std::move(outcome));
          },
          [this] { work(); })),
      arriving_(std::make_shared<Arriving>(receiver, service_.storages, service_.read_only, client_,
                                           sending_, awaiting_)),
      seat_(seat),
      account_(*client_->account()) {
    sending_->set_on_sent([this] { work(); });
    sending_->set_load([this](PendingGet get) { awaiting_->load(std::move(get)); });
    if (service_.storages.source != nullptr) {
        sending_->set_reads_through();
    }
}

void Session::close() {
    client_->close();
    requests_.clear();
    gets_.clear();
    awaiting_->close();
    arriving_->close();
    sending_->close();  // last: over UCX it ends the transfers of the others, too
}

void Session::leave() {
    try {
        sending_->reply(kNoRequest, protocol::Status::leaving);
    } catch (const std::exception&) {  // for want of memory: the client sees the end when it comes
    }
}

Session::Look Session::look(base::TimePoint now) {
    // What arrives must arrive, and what is sent be taken: other messages excuse neither.
    const auto stands = sending_->stands_still();
    const base::TimePoint stalls =
        std::min(stands ? *stands + kStallTimeout : base::TimePoint::max(),
                 arriving_->awaits_client() ? arriving_->last_came() + kStallTimeout
                                            : base::TimePoint::max());
    const base::TimePoint yields = arriving_->yields_at(now);
    const auto granted = client_->bounds().left(kAfterGrant);
    if (granted == Bounds::WallClock::duration::zero()) {
        client_->report(base::log::info, base::log::EventKind::lost, "its grant has expired");
        return {true, base::TimePoint::max()};
    }
    if (!client_->doomed() && !sending_->failed() && now <= std::min(stalls, yields)) {
        base::TimePoint next = std::min({stalls, yields, tell_of_waiting(now)});
        if (awaits_account()) {
            if (try_at_ <= now) {
                try_at_ = now + kTryEvery;
                seat_.want();
            }
            next = std::min(next, try_at_);
        }
        if (granted) {
            const auto soon = std::chrono::ceil<base::Clock::duration>(*granted);
            next = std::min(next, now + std::min<base::Clock::duration>(soon, kGrantLooks));
        }
        return {false, next};
    }
    if (client_->kicked()) {
        client_->report(base::log::warning, base::log::EventKind::kicked);
        return {true, base::TimePoint::max()};
    }
    // A client that has all it asked for may be gone by the time UCX says that it cannot be
    // reached.
    if (busy() || sending_->broke_off() || arriving_->broke_off()) {
        ++service_.counters->sessions_lost;
        const bool stalled = !client_->doomed() && !sending_->failed();
        client_->report(base::log::warning, base::log::EventKind::lost,
                        !stalled        ? "it is gone"
                        : now <= stalls ? "it sends too little, and others wait for its room"
                                        : "nothing has moved for 60 s");
    } else {
        client_->report(base::log::info, base::log::EventKind::closed);
    }
    return {true, base::TimePoint::max()};
}

std::uint64_t Session::moves() const {
    const auto& [source, decoded] = std::tie(service_.storages.source, service_.storages.decoded);
    return (source == nullptr ? 0 : source->calls().answered()) +
           (decoded == nullptr ? 0 : decoded->ended()) + arriving_->room_moved();
}

base::TimePoint Session::tell_of_waiting(base::TimePoint now) {
    if (!awaits_others()) {
        return tell_at_ = base::TimePoint::max();
    }
    const std::uint64_t moves = this->moves();
    if (tell_at_ == base::TimePoint::max()) {
        moves_told_ = moves;
        return tell_at_ = now + kTellEvery;
    }
    if (now < tell_at_) {
        return tell_at_;
    }
    tell_at_ = now + kTellEvery;
    // A client that does not read is told nothing more.
    if (std::exchange(moves_told_, moves) == moves || !sending_->has_room()) {
        return tell_at_;
    }
    std::set<std::uint64_t> requests;
    awaiting_->requests(requests);
    arriving_->waiting_requests(requests);
    for (const PendingGet& get : gets_) {
        requests.insert(get.id().request);
    }
    for (const Waiting& one : requests_) {
        requests.insert(one.header.request);
    }
    std::size_t told = 0;
    for (const std::uint64_t request : requests) {
        if (++told > kMostTold) {
            break;
        }
        sending_->reply({request, 0}, protocol::Status::going_on);
    }
    return tell_at_;
}

bool Session::busy() const {
    return awaits_client() || awaiting_->busy() || arriving_->awaits_room() ||
           sending_->values() + gets_.size() + requests_.size() > 0;
}

void Session::on_request(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    if (header.op == protocol::Op::abandon) {
        return abandon(header.request);
    }
    if (requests_.empty() && !seat_.is_over() && begin(header, body, client_->last_moved())) {
        return;
    }
    auto hold = account_.hold(Held::request_bytes, sizeof(Waiting) + body.size());
    if (!hold) {
        return refuse_for_now(header, body.size());
    }
    requests_.push_back({header,
                         {reinterpret_cast<const char*>(body.data()), body.size()},
                         std::move(*hold),
                         client_->last_moved()});
    if (seat_.is_over()) {
        seat_.want();
    }
}

// One that comes where there is no room to keep it, as UCX brings requests unasked.
void Session::refuse_for_now(const protocol::RequestHeader& header, std::size_t body_bytes) {
    check_taken();
    // A get has a reply for each item, which takes a byte at least.
    const std::uint64_t replies =
        header.op == protocol::Op::get ? std::min<std::uint64_t>(header.count, body_bytes) : 1;
    for (std::uint32_t i = 0; i < replies; ++i) {
        sending_->reply({header.request, header.first + i}, protocol::Status::busy);
    }
}

bool Session::begin(const protocol::RequestHeader& header, std::span<const std::byte> body,
                    base::TimePoint came) {
    if (header.op == protocol::Op::get) {
        return on_get(header, body, came);
    }
    if (sending_->is_full()) {
        return false;
    }
    switch (header.op) {
        case protocol::Op::ping:
            on_ping(header);
            return true;
        case protocol::Op::stats:
            on_stats(header);
            return true;
        case protocol::Op::was_read:
            on_was_read(header, body);
            return true;
        case protocol::Op::operate:
            return on_operate(header, body);
        case protocol::Op::begin_space:
        case protocol::Op::renew_space:
        case protocol::Op::end_space:
            on_space(header, body);
            return true;
        default:
            return on_other(header, body);
    }
}

// True if one was begun, or refused.
bool Session::begin_waiting() {
    if (requests_.empty()) {
        return false;
    }
    Waiting& next = requests_.front();
    bool begun = true;
    guard([&] { begun = begin(next.header, std::as_bytes(std::span(next.body)), next.came); });
    if (begun && !requests_.empty()) {
        requests_.pop_front();
    }
    return begun;
}

void Session::work() {
    if (working_) {
        return;  // inside of something that ended at once; the loop below goes on
    }
    struct Working {
        explicit Working(bool& flag) : flag(flag) { flag = true; }
        ~Working() { flag = false; }
        bool& flag;
    } working(working_);
    do {
        pump();
    } while (!client_->closed() && !client_->doomed() && !seat_.is_over() && begin_waiting());
    if ((!requests_.empty() && seat_.is_over()) || (paused_ && reads())) {
        paused_ = false;
        seat_.want();
    }
}

void Session::on_ping(const protocol::RequestHeader& header) {
    sending_->reply(id_of(header), protocol::Status::ok);
}

// They tell of all clients, and of scratch spaces.
void Session::on_stats(const protocol::RequestHeader& header) {
    if (auto fault = client_->bounds().stats_fault()) {
        return sending_->reply(id_of(header), protocol::Status::denied,
                               "(the server's counters) " + *fault);
    }
    sending_->tell(id_of(header), service_.stats(client_->id()));
}

bool Session::on_operate(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    auto call_hold = account_.hold(Held::calls, 1);
    auto reply_hold = account_.hold(Held::reply_bytes, protocol::kPageBytes);
    if (!call_hold || !reply_hold) {
        return false;
    }
    protocol::Reader reader(body);
    std::string text = reader.string();
    if (auto fault = client_->bounds().operate_fault()) {
        sending_->reply(id_of(header), protocol::Status::denied,
                        "(to operate the server) " + *fault);
    } else if (text.size() > Operators::kMostBytes) {
        sending_->reply(id_of(header), protocol::Status::invalid_key,
                        "(a request of an operator) is longer than " +
                            std::to_string(Operators::kMostBytes) + " bytes");
    } else {
        awaiting_->operate(id_of(header), *service_.operators,
                           {std::move(text), client_->id(), client_->peer()},
                           {std::move(*call_hold), std::move(*reply_hold)});
    }
    return true;
}

bool Session::on_get(const protocol::RequestHeader& header, std::span<const std::byte> body,
                     base::TimePoint came) {
    const bool decodes = (header.flags & protocol::kDecoded) != 0;
    protocol::Reader reader(body);
    const auto recipe = decodes ? std::make_shared<const std::string>(reader.string()) : nullptr;
    if (decodes && (recipe->empty() || recipe->size() > protocol::kMaxRecipeBytes)) {
        throw base::Error(base::ErrorKind::protocol, "a recipe that is empty or too long");
    }
    // Whoever has none waiting may have these.
    const std::uint64_t each = sizeof(PendingGet) + (decodes ? recipe->size() : 0);
    const std::uint64_t bytes = header.count * each + body.size();
    if (!gets_.empty() && (!account_.has_room(Held::gets, header.count) ||
                           !account_.has_room(Held::get_bytes, bytes))) {
        return false;
    }
    for (std::uint32_t i = 0; i < header.count; ++i) {
        PendingGet get(ItemId{header.request, header.first + i}, reader.get_item(),
                       (header.flags & protocol::kSendBytes) != 0, came);
        get.set_line(sending_->log().begin({.request = header.request,
                                            .kind = base::RequestKind::get,
                                            .key = get.key(),
                                            .begun = came}));
        get.decode_by(recipe);
        get.charge(account_);
        gets_.push_back(std::move(get));
    }
    work();
    return true;
}

bool Session::on_value(const protocol::ValueHeader& header, const std::string& key,
                       const ArrivingValue::Bytes& bytes) {
    check_taken();
    return arriving_->receive(header, key, bytes);
}

void Session::on_altered(const protocol::RequestHeader& header) {
    sending_->reply(id_of(header), protocol::Status::altered);
}

void Session::refuse(const char* why) {
    client_->report(base::log::warning, base::log::EventKind::refused, why);
    ++service_.counters->messages_refused;
    client_->doom();
}

void Session::on_file(const protocol::ValueHeader& header, const std::string& key,
                      base::Fd&& file) {
    check_taken();
    arriving_->receive_file(header, key, std::move(file));
}

// What carries values may bring more of them than is read. Who heeds protocol::kMaxUnanswered never
// gets there.
void Session::check_taken() const {
    if (account_.held(Held::reply_bytes) > 2 * account_.limit(Held::reply_bytes).of_session) {
        throw base::Error(base::ErrorKind::protocol, "it sends on, and takes no replies");
    }
}

void Session::pump() {
    while (!client_->closed() && sending_->has_room()) {
        if (sending_->values() + gets_.size() > 0 && seat_.is_over()) {
            seat_.want();
            break;
        }
        const Sending::Sent sent = sending_->send_next();
        if (sent == Sending::Sent::some) {
            continue;
        }
        if (sent == Sending::Sent::no_room || gets_.empty() || awaiting_->fetches_enough()) {
            break;
        }
        PendingGet next = std::move(gets_.front());
        gets_.pop_front();
        open(std::move(next));
    }
    client_->note_waiting(gets_.size() + sending_->values());
}

// Sends the value if it is at hand, else fetches it.
void Session::open(PendingGet get) {
    if (!get.was_fetched()) {
        client_->count_get();
    }
    const ItemId id = get.id();
    const Timed timed = get.timed();
    if (auto fault = protocol::key_fault(get.key())) {
        sending_->reply(id, protocol::Status::invalid_key, std::move(*fault), timed);
        return;
    }
    if (get.recipe() != nullptr) {
        if (auto refused = decoding_fault(get.key())) {
            return sending_->reply(id, refused->status, std::move(refused->payload), timed);
        }
    }
    const std::string key = get.stored_key();
    if (auto fault = client_->bounds().read_fault(key)) {
        sending_->reply(id, protocol::Status::denied, std::move(*fault), timed);
        return;
    }
    try {
        const auto storage = service_.storages.storage_of(key);
        if (storage != nullptr) {
            return found(std::move(get), storage->find(key), false);
        }
        if (auto value = decoded_of_source(get)) {
            return send(std::move(get), std::move(value), false);
        }
        auto value = service_.storages.source->find(key, get.stored_selection());
        if (value == nullptr) {
            awaiting_->fetch(std::move(get));
        } else {
            found(std::move(get), std::move(value), false);
        }
    } catch (const std::exception& error) {
        sending_->fail(id, error, timed);
    }
}

// Why no value of this name is decoded here; nullopt where it may be.
std::optional<Answer> Session::decoding_fault(const std::string& key) const {
    const auto name = protocol::decoded_name(key);
    if (!name) {
        return Answer{protocol::Status::invalid_key, "is not the name of a decoded value"};
    }
    if (auto fault = protocol::key_fault(name->key)) {
        return Answer{protocol::Status::invalid_key, std::move(*fault)};
    }
    if (service_.storages.decoded == nullptr) {
        return Answer{protocol::Status::undecoded, "it was started without (--decoded)"};
    }
    if (protocol::space_of(name->key)) {  // others may see decoded values
        return Answer{protocol::Status::undecoded, "values of scratch spaces are not"};
    }
    return std::nullopt;
}

// What was decoded of a value that the source need not be asked for; nullptr where it must be, or
// nothing was.
std::shared_ptr<const memory::Region> Session::decoded_of_source(const PendingGet& get) const {
    if (!get.is_to_decode()) {
        return nullptr;
    }
    const auto version = service_.storages.source->believed_version(get.stored_key());
    return version ? service_.storages.decoded->find(get.key(), *version) : nullptr;
}

// Goes on with a stored value: sends it, or what was decoded of it, or has that done.
void Session::found(PendingGet get, std::shared_ptr<const memory::Region> value, bool fetched) {
    if (!get.is_to_decode() || value == nullptr) {
        return send(std::move(get), std::move(value), fetched);
    }
    if (get.version() != protocol::kAnyVersion && get.version() != value->version()) {
        return sending_->refuse(
            get.id(), {protocol::Status::changed, value->size(), value->version()}, get.timed());
    }
    if (auto decoded = service_.storages.decoded->find(get.key(), value->version())) {
        return send(std::move(get), std::move(decoded), false);
    }
    awaiting_->decode(std::move(get), std::move(value));
}

void Session::send(PendingGet get, std::shared_ptr<const memory::Region> value, bool fetched) {
    const auto refusal = get.open(std::move(value));
    if (!refusal) {
        if (!sending_->show(get)) {
            if (fetched) {
                get.charge_value(account_);
            }
            sending_->add(std::move(get));
        }
        return;
    }
    if (refusal->status == protocol::Status::missing) {
        client_->count_missing();
    }
    sending_->refuse(get.id(), *refusal, get.timed());
}

void Session::fetched(std::optional<PendingGet> get, cache::Outcome<Awaiting::Value> outcome) {
    auto fault = get ? client_->bounds().read_fault(get->stored_key()) : Bounds::Fault();
    if (fault) {
        sending_->reply(get->id(), protocol::Status::denied, std::move(*fault), get->timed());
    } else if (get && outcome.value != nullptr && !outcome.value->pieced() &&
               !awaiting_->may_keep(outcome.value->size())) {
        get->note_fetched();
        get->note_decoded(false);
        gets_.push_front(std::move(*get));
    } else if (get && outcome.failure.empty()) {
        const ItemId id = get->id();
        const Timed timed = get->timed();
        try {
            found(std::move(*get), std::move(outcome.value), true);
        } catch (const std::exception& error) {
            sending_->fail(id, error, timed);
        }
    } else if (get) {
        const bool decodes = get->recipe() != nullptr && !get->is_to_decode();
        sending_->reply(get->id(),
                        decodes ? protocol::Status::undecoded : protocol::Status::storage,
                        std::move(outcome.failure), get->timed());
    }
    work();
}

void Session::abandon(std::uint64_t request) {
    if (!sending_->has_failed(request)) {
        client_->count_abandoned();
    }
    std::erase_if(requests_, [&](const Waiting& one) { return one.header.request == request; });
    std::erase_if(gets_, [&](const PendingGet& one) { return one.id().request == request; });
    sending_->abandon(request);
    awaiting_->abandon(request);
    arriving_->abandon(request);
}

void Session::on_was_read(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    protocol::Reader reader(body);
    sending_->time(id_of(header), base::RequestKind::other);
    for (std::uint32_t i = 0; i < header.count; ++i) {
        const std::string key = reader.string();
        const std::uint64_t version = reader.u64();
        if (!protocol::is_read_once(key) || client_->bounds().read_fault(key)) {
            continue;  // no client of ours says so
        }
        try {
            service_.storages.storage_of(key)->was_read(key, version);
        } catch (const base::Error&) {  // the space has ended
        }
    }
    sending_->reply(id_of(header), protocol::Status::ok);
}

// Begins, renews or ends a scratch space, for its owner.
void Session::on_space(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    const SpaceRequest request = read_space_request(header.op, body);
    const ItemId id = id_of(header);
    sending_->time(id, base::RequestKind::other);
    if (!protocol::is_space_name(request.name)) {
        sending_->reply(id, protocol::Status::invalid_key, "is not the name of a scratch space");
        return;
    }
    const std::string folder = std::string(protocol::kScratchFolder) + request.name + "/";
    if (auto fault = client_->bounds().write_fault(folder)) {
        sending_->reply(id, protocol::Status::denied, "(a scratch space) " + *fault);
        return;
    }
    try {
        storage::Spaces& spaces = service_.storages.offered_spaces();
        if (header.op == protocol::Op::end_space) {
            spaces.end(request.name, awaiting_->reply_when_called(id));
            return;
        }
        if (header.op == protocol::Op::begin_space) {
            auto hold = account_.hold(Held::spaces, 1);
            if (!hold) {
                throw base::Error(
                    base::ErrorKind::storage,
                    "no room for another scratch space: this client has begun " +
                        std::to_string(account_.held(Held::spaces)) +
                        ", or all clients of its origin have begun as many as they may");
            }
            spaces.begin(request.name, request.quota, request.timeout,
                         storage::Spaces::Clock::now(),
                         {.session = client_, .share = std::make_shared<Hold>(std::move(*hold))});
        } else {
            spaces.renew(request.name, storage::Spaces::Clock::now(), client_);
        }
        sending_->reply(id, protocol::Status::ok);
    } catch (const std::exception& error) {
        sending_->fail(id, error);
    }
}

// Requests that are calls to a storage or to the source. Only few keys are looked at here: the rest
// may take long, and is for other threads.
bool Session::on_other(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    auto call_hold = account_.hold(Held::calls, 1);
    auto reply_hold = account_.hold(Held::reply_bytes, longest_reply(header, body.size()));
    if (!call_hold || !reply_hold) {
        return false;
    }
    CallRoom room{std::move(*call_hold), std::move(*reply_hold)};
    std::uint32_t line = 0;
    if (RequestLog::is_on()) {
        const std::string first =  // a key or a prefix, in all of them
            body.empty() ? std::string() : protocol::Reader(body).string();
        line = sending_->log().begin({.request = header.request,
                                      .kind = kind_of(header.op),
                                      .key = first,
                                      .keys = header.count});
    }
    sending_->time(id_of(header), kind_of(header.op), line);
    std::variant<cache::StorageCall, Answer> read =
        read_call(service_.read_only, client_->bounds(), header, body);
    if (auto* call = std::get_if<cache::StorageCall>(&read)) {
        std::shared_ptr<storage::Storage> storage;
        try {
            storage = service_.storages.storage_of(key_or_prefix_of(*call));
        } catch (const base::Error& error) {
            sending_->fail(id_of(header), error);
            return true;
        }
        if (storage == nullptr) {
            awaiting_->call(id_of(header), std::move(*call), std::move(room));
            return true;
        }
        if (!concerns_few_keys(*call) || (changes(*call) && storage->removing_waits())) {
            awaiting_->walk(id_of(header), std::move(storage), std::move(*call), std::move(room));
            return true;
        }
        read = answer_at_once(std::move(storage), std::move(*call));
    }
    auto& answer = std::get<Answer>(read);
    room = {};
    sending_->reply(id_of(header), answer.status, std::move(answer.payload));
    return true;
}

}  // namespace ucxstore::sessions

#include "server/session.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "server/answer.hpp"

namespace ucxstore {
namespace {

using wire::Status;

// What one client has in flight towards it: enough to keep any lane full, little enough that its
// mappings and descriptors stay small. The rest waits as keys.
constexpr std::uint64_t kMaxSends = 128;
constexpr std::uint64_t kMaxSendBytes = 256ull << 20;

// What a remote storage fetches for one client at once: as many as can then be sent.
constexpr std::size_t kMaxFetches = kMaxSends;

// What one client may have waiting before it is refused.
constexpr std::size_t kMaxWaiting = 1'000'000;

// Requests that were abandoned, which are remembered as their messages may still be on the way.
constexpr std::size_t kRemembered = 256;

// A client that has something in flight and has not moved it for this long is given up.
constexpr auto kStallTimeout = std::chrono::seconds(60);

// How long UCX may take to let go of memory once the endpoint was closed by force.
constexpr auto kReleaseTimeout = std::chrono::seconds(5);

}  // namespace

// A reply, or a segment of one: pins the region, or owns the bytes, that it is sent from.
class Session::Send : public Request {
  public:
    std::shared_ptr<Session> session;
    std::shared_ptr<const Region> region;
    std::string payload;
    std::uint64_t bytes = 0;

    // Sends a copy of what of the region is in a layout.
    void pack(const Layout& layout) {
        payload.resize(layout.size());
        layout.pack(region->data(), reinterpret_cast<std::byte*>(payload.data()));
        pieces.push_back({payload.data(), payload.size()});
    }

    void completed(ucs_status_t status) override {
        --session->active_sends_;
        session->active_bytes_ -= bytes;
        session->last_moved_ = Clock::now();
        session->note();
        if (status == UCS_OK) {
            session->counters_.count_sent(*session->client_, bytes);
            try {
                session->pump();
            } catch (const std::exception&) {  // for want of memory; none may pass through UCX
                session->doom();
            }
        }
    }
};

Session::Session(std::unique_ptr<Worker> worker, Holdings holdings,
                 std::weak_ptr<Progress> progress, Counters& counters, bool read_only,
                 const wire::Token& token, const std::string& address, const std::string& peer)
    : Peer(std::move(worker), kReleaseTimeout),
      holdings_(std::move(holdings)),
      progress_(std::move(progress)),
      counters_(counters),
      client_(counters.add(peer)),
      read_only_(read_only),
      token_(token),
      address_(address) {
    Endpoint::check_address(*worker_, address);
    worker_->on_message(static_cast<unsigned>(wire::Message::request), &on_request_message, this);
    worker_->on_message(static_cast<unsigned>(wire::Message::value), &on_value_message, this);
}

void Session::meet() {
    if (!first_ping_ || endpoint_ != nullptr || closed_) {
        return;
    }
    try {
        endpoint_ = std::make_unique<Endpoint>(*worker_, address_);
        counters_.set_lanes(*client_, endpoint_->lanes());
        answer(*first_ping_, {});
    } catch (const std::exception&) {
        doom();
    }
}

void Session::close() {
    if (begin_close()) {
        waiting_.clear();
        fetching_.clear();
        fetched_.clear();
        arriving_.clear();
        count_waiting();
        if (endpoint_ != nullptr) {
            endpoint_->close();
        }
    }
}

TimePoint Session::tick(Progress&, TimePoint now) {
    if (closed_) {
        return TimePoint::max();
    }
    meet();
    const bool stalled = awaits_client() && now - last_moved_ > kStallTimeout;
    if (doomed_ || failed() || stalled) {
        if (busy() || failed()) {
            ++counters_.sessions_lost;
        }
        close();
        return TimePoint::max();
    }
    return awaits_client() ? last_moved_ + kStallTimeout : TimePoint::max();
}

template <typename Header, typename Handle>
ucs_status_t Session::dispatch(const void* header, std::size_t header_size, Handle handle) {
    const auto decoded = wire::read_header<Header>(header, header_size);
    if (closed_ || !decoded || decoded->token != token_) {
        ++counters_.messages_refused;
        return UCS_OK;
    }
    try {
        handle(*decoded);
    } catch (const std::exception&) {  // none may pass through UCX
        ++counters_.messages_refused;
        doom();
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
            std::string key(static_cast<const char*>(header) + sizeof(decoded), key_size);
            const std::span<const std::byte> bytes(
                rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size);
            kept = session->on_value(decoded, std::move(key), bytes, rendezvous ? data : nullptr);
        });
    return kept ? UCS_INPROGRESS : status;
}

void Session::on_request(const wire::RequestHeader& header, std::span<const std::byte> body) {
    last_moved_ = Clock::now();
    if (endpoint_ == nullptr) {
        if (header.op != wire::Op::ping) {
            throw Error(ErrorKind::protocol, "a request before the first ping");
        }
        first_ping_ = header;
        return;
    }
    if (header.op == wire::Op::abandon) {
        abandon(header.request);
        return;
    }
    if (header.op != wire::Op::get) {
        answer(header, body);
        return;
    }
    wire::Reader reader(body);
    for (std::uint32_t i = 0; i < header.count; ++i) {
        if (waiting_.size() >= kMaxWaiting) {
            throw Error(ErrorKind::protocol, "more requests at once than a server takes");
        }
        waiting_.push_back({header.request, header.first + i, reader.get_item(), {}, {}, {}});
    }
    pump();
}

void Session::pump() {
    if (std::exchange(pumping_, true)) {
        return;  // a send that completed at once; the loop below goes on
    }
    while (!closed_ && active_sends_ < kMaxSends && active_bytes_ < kMaxSendBytes) {
        std::deque<Waiting>& queue = fetched_.empty() ? waiting_ : fetched_;
        if (queue.empty() || (fetched_.empty() && fetching_.size() >= kMaxFetches)) {
            break;
        }
        Waiting& next = queue.front();
        bool more = false;
        try {
            if (next.region != nullptr || open(next)) {
                send_segment(next);
                more = next.sent < next.size;
            }
        } catch (const std::exception& error) {
            reply(next.request, next.item, status_of(error), error.what());
        }
        if (!more) {
            queue.pop_front();
        }
    }
    pumping_ = false;
    note();
}

void Session::note() {
    client_->bytes_in_flight = active_bytes_;
    client_->gets_waiting = waiting_.size();
}

bool Session::open(Waiting& waiting) {
    counters_.count_get(*client_);
    const wire::GetItem& get = waiting.get;
    if (auto fault = wire::key_fault(get.key)) {
        reply(waiting.request, waiting.item, Status::invalid_key, std::move(*fault));
        return false;
    }
    const auto home = home_of(get.key);
    auto region = home ? home->find(get.key) : holdings_.remote->find(get.key, get.selection);
    if (region == nullptr && home == nullptr) {
        fetch(waiting);
        return false;
    }
    return begin(waiting, std::move(region));
}

bool Session::begin(Waiting& waiting, std::shared_ptr<const Region> region) {
    const wire::GetItem& get = waiting.get;
    if (region == nullptr) {
        ++counters_.gets_missing;
        reply(waiting.request, waiting.item, Status::missing);
        return false;
    }
    if (get.version != wire::kAnyVersion && get.version != region->version()) {
        reply(waiting.request, waiting.item, Status::changed, {}, region->size(),
              region->version());
        return false;
    }
    if (get.expected != wire::kAnySize && get.expected != region->size()) {
        reply(waiting.request, waiting.item, Status::wrong_size, {}, region->size());
        return false;
    }
    waiting.region = std::move(region);
    return choose(waiting);
}

bool Session::choose(Waiting& waiting) {
    const std::uint64_t value_size = waiting.region->size();
    if (auto* box = std::get_if<Layout>(&waiting.get.selection)) {
        // Each byte of a box once at the most: one of strides 0 could be larger than any value.
        if (!box->fits(value_size) || box->box_size() > value_size) {
            reply(waiting.request, waiting.item, Status::bad_range, {}, value_size);
            return false;
        }
        waiting.size = box->size();
        waiting.layout = std::move(*box);
    } else if (const auto& wanted = std::get<std::vector<wire::Range>>(waiting.get.selection);
               wanted.size() == 1) {
        const wire::Span span = wire::resolve(wanted[0], value_size);
        waiting.layout = Layout::contiguous(span.length, static_cast<std::int64_t>(span.begin));
        waiting.size = span.length;
    } else if (wanted.empty()) {
        waiting.layout = Layout::contiguous(value_size);
        waiting.size = value_size;
    } else {
        for (const wire::Range& range : wanted) {
            const wire::Span span = wire::resolve(range, value_size);
            waiting.size += span.length;
            if (span.length > 0) {
                waiting.ranges.push_back({waiting.region->data() + span.begin, span.length});
            }
        }
    }
    if (waiting.size > waiting.get.limit) {
        reply(waiting.request, waiting.item, Status::too_large, {}, waiting.size);
        return false;
    }
    return true;
}

void Session::send_segment(Waiting& waiting) {
    auto segment = std::make_unique<Send>();
    segment->region = waiting.region;
    std::uint64_t step = std::max(waiting.size, wire::kMinSegmentBytes);
    if (waiting.ranges.empty()) {
        step = std::min(waiting.get.segment, wire::segment_bytes(waiting.layout));
    }  // else several byte ranges: one message, as they were one request
    wire::ReplyHeader header = reply_header(waiting.request, waiting.item, Status::ok);
    header.value_size = waiting.region->size();
    header.version = waiting.region->version();
    header.reply_size = waiting.size;
    header.segment = step;
    header.offset = waiting.sent;
    header.length = std::min(step, waiting.size - waiting.sent);
    if (!waiting.ranges.empty()) {
        segment->pieces = std::move(waiting.ranges);
    } else if (waiting.layout.run_count() > 1 && waiting.size <= Request::kEagerBytes &&
               !waiting.region->pieced()) {
        segment->pack(waiting.layout);
    } else {
        waiting.layout.pieces(waiting.region->data(), header.offset, header.length,
                              segment->pieces);
    }
    if (waiting.region->pieced()) {
        waiting.region->locate(segment->pieces);
    }
    segment->bytes = header.length;
    waiting.sent += header.length;
    send(header, std::move(segment));
}

wire::ReplyHeader Session::reply_header(std::uint64_t request, std::uint32_t item,
                                        Status status) const {
    wire::ReplyHeader header{};
    header.token = token_;
    header.request = request;
    header.item = item;
    header.status = status;
    return header;
}

void Session::abandon(std::uint64_t request) {
    const auto is_of_it = [request](const Waiting& one) { return one.request == request; };
    std::erase_if(waiting_, is_of_it);
    std::erase_if(fetched_, is_of_it);
    std::erase_if(fetching_, [&](const auto& entry) { return is_of_it(entry.second); });
    std::erase_if(arriving_, [request](const auto& entry) { return entry.first.first == request; });
    count_waiting();
    abandoned_.push_back(request);
    if (abandoned_.size() > kRemembered) {
        abandoned_.pop_front();
    }
}

void Session::reply(std::uint64_t request, std::uint32_t item, Status status, std::string payload,
                    std::uint64_t value_size, std::uint64_t version) {
    if (status != Status::ok) {
        payload.resize(std::min(payload.size(), wire::kMaxErrorBytes));
    }
    auto text = std::make_unique<Send>();
    text->payload = std::move(payload);
    text->bytes = text->payload.size();
    if (text->bytes > 0) {
        text->pieces.push_back({text->payload.data(), text->payload.size()});
    }
    wire::ReplyHeader header = reply_header(request, item, status);
    header.value_size = value_size;
    header.version = version;
    header.reply_size = text->bytes;
    header.segment = std::max<std::uint64_t>(text->bytes, wire::kMinSegmentBytes);
    header.length = text->bytes;
    send(header, std::move(text));
}

void Session::send(const wire::ReplyHeader& header, std::unique_ptr<Send> request) {
    const ucp_ep_h endpoint = endpoint_ == nullptr ? nullptr : endpoint_->get();
    if (endpoint == nullptr) {
        return;  // the client is gone, and the session about to go
    }
    const std::uint64_t bytes = request->bytes;
    ++active_sends_;
    active_bytes_ += bytes;
    request->session = self();
    try {
        Request::send(std::move(request), *worker_, endpoint, wire::Message::reply, &header,
                      sizeof(header));
    } catch (const std::exception&) {  // it has not been sent
        --active_sends_;
        active_bytes_ -= bytes;
        throw;
    }
}

void Session::answer(const wire::RequestHeader& header, std::span<const std::byte> body) {
    if (header.op == wire::Op::stats) {
        const auto spaces =
            holdings_.spaces ? holdings_.spaces->counts() : std::vector<SpaceCounts>();
        reply(header.request, header.first, Status::ok, counters_.to_json(spaces));
        return;
    }
    if (header.op == wire::Op::begin_space || header.op == wire::Op::renew_space ||
        header.op == wire::Op::end_space) {
        scratch(header, body);
        return;
    }
    std::variant<Ask, Answer> asked = read_ask(read_only_, header, body);
    if (auto* wanted = std::get_if<Ask>(&asked)) {
        std::shared_ptr<Storage> home;
        try {
            home = home_of(place_of(*wanted));
        } catch (const Error& error) {
            reply(header.request, header.first, status_of(error), error.what());
            return;
        }
        if (home == nullptr) {
            ask(header, std::move(*wanted));
            return;
        }
        asked = answer_of(*home, *wanted);
    }
    auto& answer = std::get<Answer>(asked);
    reply(header.request, header.first, answer.status, std::move(answer.payload));
}

}  // namespace ucxstore

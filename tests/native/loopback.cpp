#include "loopback.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace ucxstore::test {
namespace {

// What a puppet sends, until UCX is done with it.
struct Parcel {
    std::uint64_t& in_flight;
    std::string data;
    ucp_dt_iov_t piece = {data.data(), data.size()};

    static void sent(void* request, ucs_status_t, void* self) {
        const std::unique_ptr<Parcel> parcel(static_cast<Parcel*>(self));
        --parcel->in_flight;
        ucp_request_free(request);
    }
};

}  // namespace

ControlPair control_pair() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        throw std::runtime_error("socketpair");
    }
    return {Fd(pair[0]), Fd(pair[1])};
}

Token new_token() {
    static std::atomic<std::uint64_t> last = 0;
    Token token{};
    const std::uint64_t number = ++last;
    std::memcpy(token.data(), &number, sizeof(number));
    return token;
}

std::unique_ptr<Worker> new_worker(const Options& options) {
    return std::make_unique<Worker>(
        std::make_shared<const Context>(options, kLoopback, SharedMemory::on));
}

Loopback::Loopback(const Options& options, bool read_only, std::shared_ptr<Storage> the_storage)
    : storage(the_storage ? std::move(the_storage) : std::make_shared<MemoryStorage>()),
      server(std::make_unique<UcxThread>(Service{storage, shared_counters, read_only}, options,
                                         false, 0)),
      client(std::make_unique<Client>(options, false)) {
    connection = connect();
}

Loopback::Loopback(std::shared_ptr<CachedSource> remote, const Options& options,
                   std::shared_ptr<Spaces> spaces)
    : server(std::make_unique<UcxThread>(
          Service{Storages(std::move(remote), std::move(spaces)), shared_counters}, options, false,
          0)),
      client(std::make_unique<Client>(options, false)) {
    connection = connect();
}

Loopback::~Loopback() {
    connection.reset();
    client.reset();
    server.reset();
}

std::shared_ptr<Connection> Loopback::connect(Client& from, Connection::Integrity integrity) {
    ControlPair pair = control_pair();
    const Token token = new_token();
    auto ours = from.open(-1, SharedMemory::on);
    auto theirs = server->open(-1, SharedMemory::on);
    const std::string address = theirs->address();
    server->attach(std::move(theirs), std::move(pair.one), token, ours->address(), {"client"});
    auto made =
        from.attach(std::move(ours), std::move(pair.other), token, address, "server", integrity);
    const auto ping = call_operation(Op::ping, "");
    from.submit(made, ping);
    finish(ping);
    return made;
}

void finish(const std::shared_ptr<Operation>& operation) {
    if (!operation->wait_for(kPatience)) {
        throw std::runtime_error("the operation did not complete");
    }
    operation->check();
}

void await(Link& link, const std::shared_ptr<Operation>& operation) {
    if (!link.wait_for(*operation, kPatience)) {
        throw std::runtime_error("the operation did not complete");
    }
    operation->check();
}

void Loopback::run(const std::shared_ptr<Operation>& operation) {
    submit(operation);
    finish(operation);
}

void Loopback::set(const std::string& key, const Bytes& value) {
    Bytes copy = value;
    run(set_operation({{key, memory_of(copy)}}));
}

std::optional<Bytes> Loopback::get(const std::string& key, Selection selection) {
    const auto operation = get_operation({{key, std::move(selection)}});
    run(operation);
    if (operation->items[0].status == Status::missing) {
        return std::nullopt;
    }
    return reply_of(*operation);
}

std::uint64_t Loopback::stat(const std::string& key) {
    const auto operation = call_operation(Op::stat, strings({key}));
    run(operation);
    const Bytes reply = reply_of(*operation);
    return Reader(reply).u64();
}

std::shared_ptr<Operation> get_operation(const std::vector<Get>& gets, double timeout_s) {
    std::vector<Item> items(gets.size());
    std::vector<GetItem> wanted(gets.size());
    for (std::size_t i = 0; i < gets.size(); ++i) {
        items[i].key = gets[i].key;
        items[i].memory = gets[i].memory;
        items[i].exact = gets[i].exact;
        items[i].version = gets[i].version;
        wanted[i].selection = gets[i].selection;
        wanted[i].expected = gets[i].expected;
    }
    auto operation = std::make_shared<Operation>(std::move(items), timeout_s, nullptr);
    operation->kind = Operation::Kind::get;
    want(*operation, std::move(wanted));
    return operation;
}

std::shared_ptr<Operation> set_operation(const std::vector<Set>& sets, bool if_absent,
                                         double timeout_s) {
    std::vector<Item> items(sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
        items[i].key = sets[i].key;
        items[i].memory = sets[i].memory;
    }
    auto operation = std::make_shared<Operation>(std::move(items), timeout_s, nullptr);
    operation->kind = if_absent ? Operation::Kind::set_if_absent : Operation::Kind::set;
    return operation;
}

std::shared_ptr<Operation> call_operation(Op op, const std::string& body, std::uint32_t count,
                                          double timeout_s) {
    auto operation = std::make_shared<Operation>(std::vector<Item>(1), timeout_s, nullptr);
    operation->requests.push_back({{{}, 0, op, 0, count, 0}, body});
    return operation;
}

std::string strings(const std::vector<std::string>& texts) {
    std::string body;
    for (const std::string& text : texts) {
        put_string(body, text);
    }
    return body;
}

Memory memory_of(Bytes& bytes) { return {bytes.data(), Layout::contiguous(bytes.size())}; }

Bytes reply_of(const Operation& operation, std::size_t item) {
    const auto& region = operation.items[item].owned;
    return {region->data(), region->data() + region->size()};
}

ReplyHeader reply_header(const Token& token, std::uint64_t request, std::uint32_t item,
                         Status status, std::uint64_t size) {
    ReplyHeader header{};
    header.token = token;
    header.request = request;
    header.item = item;
    header.status = status;
    header.value_size = size;
    header.version = 1;
    header.reply_size = size;
    header.segment = std::max(size, kMinSegmentBytes);
    header.length = size;
    return header;
}

Puppet::Puppet(const Options& options) : worker_(new_worker(options)) {
    for (const auto message : {Message::request, Message::value, Message::reply}) {
        worker_->on_message(static_cast<unsigned>(message), &on_message, this);
    }
}

Puppet::~Puppet() {
    endpoint_.reset();
    until([this] { return in_flight_ + worker_->closing == 0; });
}

void Puppet::connect(const std::string& address) {
    endpoint_ = std::make_unique<Endpoint>(*worker_, address);
}

void Puppet::send(Message message, const std::string& header, std::string data, Way way) {
    if (endpoint_->get() == nullptr) {
        return;
    }
    auto parcel = std::make_unique<Parcel>(in_flight_, std::move(data));
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    // Even for one piece: UCX 1.21 without its registration cache, as under ThreadSanitizer,
    // crashes where a contiguous send by rendezvous is cancelled (openucx/ucx issue 11467).
    params.datatype = ucp_dt_make_iov();
    params.flags = UCP_AM_SEND_FLAG_COPY_HEADER |
                   (way == Way::eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
    params.cb.send = &Parcel::sent;
    params.user_data = parcel.get();
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint_->get(), static_cast<unsigned>(message), header.data(),
                        header.size(), &parcel->piece, 1, &params);
    if (UCS_PTR_IS_PTR(request)) {
        ++in_flight_;
        static_cast<void>(parcel.release());
    }
}

bool Puppet::until(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        // Some tests wait for seconds, and others need the processor meanwhile.
        if (!worker_->progress()) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    return true;
}

void Puppet::meet(const std::string& address) {
    ASSERT_TRUE(until([this] { return pinged_; }));
    connect(address);
}

void Puppet::flush() {
    until([this] { return in_flight_ == 0 || endpoint_->failed(); });
}

ucs_status_t Puppet::on_message(void* self, const void* header, std::size_t header_size, void* data,
                                std::size_t size, const ucp_am_recv_param_t* param) {
    const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    auto* const puppet = static_cast<Puppet*>(self);
    const auto request = read_header<RequestHeader>(header, header_size);
    if (header_size < sizeof(ReplyHeader) && request && request->request == 0 &&
        request->op == Op::ping) {
        puppet->pinged_ = true;
        return UCS_OK;
    }
    puppet->received_.push_back(
        {std::string(static_cast<const char*>(header), header_size),
         std::string(static_cast<const char*>(data), rendezvous ? 0 : size)});
    return rendezvous ? UCS_INPROGRESS : UCS_OK;
}

}  // namespace ucxstore::test

// Values over UCX's active messages, by different settings: what UCX itself can do over TCP.
//
//     ucx_messages serve HOST SETTING...
//     ucx_messages clients HOST PORT get|set BYTES CLIENTS SETTING...
//
// Both sides must have the same settings, NAME=VALUE:
//
//     workers=each|one            a UCX worker for each peer, or one for all of them
//     linger=MICROSECONDS|ever    how long a worker without events is polled before its thread
//                                 sleeps on the workers' event descriptors
//     connect=address|listener    exchange worker addresses over a socket, or let UCX listen
//     errors=peer|none            whether endpoints handle the errors of peers
//     eager=BYTES|ucx             send up to so many bytes eagerly, more by rendezvous; or as UCX
//                                 chooses (UCX_RNDV_THRESH)
//     segment=BYTES               send longer values in several messages
//     list=yes|no                 whether rendezvous gets a list of one piece, as ucxstore's sends
//
// UCX's own settings are in the environment. Both programs end with their input.
#include <sched.h>
#include <sys/epoll.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "window.hpp"

namespace {

using namespace network;

constexpr unsigned kRequest = 1;
constexpr unsigned kReply = 2;
constexpr unsigned kHello = 3;  // the server's first message over a connection that UCX accepted

struct Head {
    std::uint64_t peer = 0;  // its number at the server
    std::uint64_t is_set = 0;
    std::uint64_t bytes = 0;   // of the value
    std::uint64_t offset = 0;  // of the value among all
    std::uint64_t at = 0;      // of this segment in the value
};

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK) {
        std::fprintf(stderr, "ucx_messages: %s: %s\n", what, ucs_status_string(status));
        std::exit(1);
    }
}

struct Settings {
    bool worker_each = true;
    double linger = 0;  // seconds
    bool listens = false;
    bool handles_errors = true;
    std::int64_t eager = 4096;  // -1: as UCX chooses
    std::uint64_t segment = 16 << 20;
    bool lists = true;
};

Settings read_settings(int count, char** words) {
    std::map<std::string, std::string> given = {
        {"workers", "each"}, {"linger", "0"},         {"connect", "address"}, {"errors", "peer"},
        {"eager", "4096"},   {"segment", "16777216"}, {"list", "yes"}};
    for (int i = 0; i < count; ++i) {
        const std::string word = words[i];
        const std::size_t split = word.find('=');
        if (split == std::string::npos || !given.contains(word.substr(0, split))) {
            std::fprintf(stderr, "ucx_messages: there is no setting %s\n", word.c_str());
            std::exit(2);
        }
        given[word.substr(0, split)] = word.substr(split + 1);
    }
    Settings found;
    found.worker_each = given["workers"] == "each";
    found.linger = given["linger"] == "ever" ? 1e9 : std::stod(given["linger"]) / 1e6;
    found.listens = given["connect"] == "listener";
    found.handles_errors = given["errors"] == "peer";
    found.eager = given["eager"] == "ucx" ? -1 : std::stoll(given["eager"]);
    found.segment = std::stoull(given["segment"]);
    found.lists = given["list"] == "yes";
    return found;
}

ucp_context_h start_ucx() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "reading the configuration");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    ucp_context_h context = nullptr;
    check(ucp_init(&params, config, &context), "starting UCX");
    ucp_config_release(config);
    return context;
}

class Worker {
  public:
    explicit Worker(ucp_context_h context) {
        ucp_worker_params_t params{};
        params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
        params.thread_mode = UCS_THREAD_MODE_SINGLE;
        params.events = UCP_WAKEUP_TX | UCP_WAKEUP_RX | UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV |
                        UCP_WAKEUP_RMA | UCP_WAKEUP_AMO;
        check(ucp_worker_create(context, &params, &handle_), "creating a worker");
        check(ucp_worker_get_efd(handle_, &event_fd_), "asking for the event descriptor");
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        check(ucp_worker_get_address(handle_, &address, &length), "asking for the address");
        address_.assign(reinterpret_cast<const char*>(address), length);
        ucp_worker_release_address(handle_, address);
    }
    void on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument) {
        ucp_am_handler_param_t params{};
        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        params.id = id;
        params.cb = callback;
        params.arg = argument;
        params.flags = UCP_AM_FLAG_WHOLE_MSG;
        check(ucp_worker_set_am_recv_handler(handle_, &params), "setting a handler");
    }
    ucp_worker_h get() const { return handle_; }
    int event_fd() const { return event_fd_; }
    const std::string& address() const { return address_; }
    // Moves all that can be moved; says whether that was something.
    bool progress() {
        bool any = false;
        while (ucp_worker_progress(handle_) != 0) {
            any = true;
        }
        return any;
    }
    // Lets the descriptor tell of the next event; false if there was one meanwhile.
    bool arm() { return ucp_worker_arm(handle_) == UCS_OK; }

  private:
    ucp_worker_h handle_ = nullptr;
    int event_fd_ = -1;
    std::string address_;
};

// Drives workers, and listens to other descriptors.
class Loop {
  public:
    explicit Loop(double linger) : linger_(linger) {}

    void add(Worker& worker) {
        workers_.push_back({&worker, true, now()});
        watch(worker.event_fd(), workers_.size() - 1);
    }
    void listen(int fd, std::function<void()> on_event) {
        listeners_.push_back(std::move(on_event));
        watch(fd, kListeners + listeners_.size() - 1);
    }
    // Goes on until `ended` says so, after a round.
    void run(const std::function<bool()>& ended) {
        double then = now();
        double looked = then;
        for (Driven& one : workers_) {
            one.awake = true;
            one.active = then;
        }
        while (!ended()) {
            const bool active = drive(then);
            then = now();
            if (then - looked >= kSecondsBetweenLooks) {
                look(0);
                looked = then;
            }
            if (active) {
                continue;
            }
            if (arm(then)) {
                look(-1);
                then = now();
            } else {
                sched_yield();
            }
        }
    }

  private:
    struct Driven {
        Worker* worker;
        bool awake;
        double active;
    };
    static constexpr std::uint64_t kListeners = 1ull << 32;
    static constexpr double kSecondsBetweenLooks = 50e-6;

    void watch(int fd, std::uint64_t number) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = number;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
            fail("watching a descriptor");
        }
    }
    bool drive(double then) {
        bool any = false;
        for (std::size_t number = 0; number < workers_.size(); ++number) {  // it may grow meanwhile
            if (workers_[number].awake && workers_[number].worker->progress()) {
                workers_[number].active = then;
                any = true;
            }
        }
        return any;
    }
    // Lets all sleep that had nothing to do for long enough; says whether all sleep.
    bool arm(double then) {
        bool all = true;
        for (Driven& one : workers_) {
            if (one.awake && then - one.active >= linger_) {
                one.awake = !one.worker->arm();
            }
            all = all && !one.awake;
        }
        return all;
    }
    void look(int timeout) {
        std::array<epoll_event, 64> events;
        const int count = epoll_wait(epoll_, events.data(), events.size(), timeout);
        for (int i = 0; i < count; ++i) {
            const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
            if (number >= kListeners) {
                listeners_[number - kListeners]();
            } else if (!workers_[number].awake) {
                workers_[number].awake = true;
                workers_[number].active = now();
            }
        }
    }

    const double linger_;
    const int epoll_ = epoll_create1(0);
    std::vector<Driven> workers_;
    std::vector<std::function<void()>> listeners_;
};

// ---- messages ----

struct Sent {
    ucp_dt_iov_t piece;
};

void send(ucp_ep_h endpoint, unsigned id, const Head& head, std::byte* data, std::uint64_t bytes,
          const Settings& settings) {
    auto sent = std::make_unique<Sent>(Sent{{data, bytes}});
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
    const bool eager = bytes == 0 || std::cmp_less_equal(bytes, settings.eager);
    params.flags = UCP_AM_SEND_FLAG_COPY_HEADER;
    if (eager || settings.eager >= 0) {
        params.flags |= eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    }
    const bool as_list = !eager && settings.lists;
    params.datatype = as_list ? ucp_dt_make_iov() : ucp_dt_make_contig(1);
    params.user_data = sent.get();
    params.cb.send = [](void* request, ucs_status_t, void* argument) {
        delete static_cast<Sent*>(argument);
        ucp_request_free(request);
    };
    void* const buffer = as_list ? static_cast<void*>(&sent->piece) : data;
    const ucs_status_ptr_t pointer =
        ucp_am_send_nbx(endpoint, id, &head, sizeof(head), buffer, as_list ? 1 : bytes, &params);
    if (UCS_PTR_IS_PTR(pointer)) {
        sent.release();
    }
}

void send_value(ucp_ep_h endpoint, unsigned id, Head head, std::byte* data,
                const Settings& settings) {
    for (head.at = 0; head.at < head.bytes; head.at += settings.segment) {
        send(endpoint, id, head, data + head.at, std::min(settings.segment, head.bytes - head.at),
             settings);
    }
}

using Done = std::function<void()>;

// Receives what came with a message, and calls `done` after that.
void receive(Worker& worker, void* data, std::size_t bytes, const ucp_am_recv_param_t* param,
             std::byte* target, Done done) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        std::memcpy(target, data, bytes);
        return done();
    }
    auto owner = std::make_unique<Done>(std::move(done));
    ucp_request_param_t params{};
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.user_data = owner.get();
    params.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* argument) {
        const std::unique_ptr<Done> called(static_cast<Done*>(argument));
        ucp_request_free(request);
        if (status == UCS_OK) {
            (*called)();
        }
    };
    const ucs_status_ptr_t pointer =
        ucp_am_recv_data_nbx(worker.get(), data, target, bytes, &params);
    if (UCS_PTR_IS_PTR(pointer)) {
        owner.release();
    }
}

ucp_ep_h open_endpoint(Worker& worker, ucp_ep_params_t params, const Settings& settings,
                       bool* failed) {
    if (settings.handles_errors) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t) {
            *static_cast<bool*>(argument) = true;
        };
        params.err_handler.arg = failed;
    }
    ucp_ep_h endpoint = nullptr;
    check(ucp_ep_create(worker.get(), &params, &endpoint), "creating an endpoint");
    return endpoint;
}

ucp_ep_params_t to_worker(const std::string& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    return params;
}

// ---- addresses over a socket ----

void put(int fd, const void* data, std::size_t bytes) {
    if (::send(fd, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
        fail("sending an address");
    }
}

void take(int fd, void* data, std::size_t bytes) {
    if (recv(fd, data, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) {
        fail("receiving an address");
    }
}

void put_address(int fd, std::uint64_t peer, const std::string& address) {
    const std::uint64_t numbers[] = {peer, address.size()};
    put(fd, numbers, sizeof(numbers));
    put(fd, address.data(), address.size());
}

std::uint64_t take_address(int fd, std::string& address) {
    std::uint64_t numbers[2];
    take(fd, numbers, sizeof(numbers));
    address.resize(numbers[1]);
    take(fd, address.data(), address.size());
    return numbers[0];
}

// ---- the server ----

class Server {
  public:
    Server(const char* host, const Settings& settings)
        : settings_(settings), context_(start_ucx()), loop_(settings.linger) {
        loop_.listen(STDIN_FILENO, [] { std::_Exit(0); });
        if (settings.listens) {
            listen_by_ucx(host);
        } else {
            const int listener = listen_at(host, 0);
            loop_.listen(listener, [this, listener] { accept_one(listener); });
        }
    }
    void run() {
        loop_.run([this] {
            for (ucp_conn_request_h request : std::exchange(asking_, {})) {
                accept_one(request);
            }
            return false;
        });
    }

  private:
    struct Session {
        Worker* worker = nullptr;
        ucp_ep_h endpoint = nullptr;
        bool failed = false;
        std::vector<std::byte> sink;
        std::uint64_t come = 0;  // of the value of a set
    };

    void listen_by_ucx(const char* host) {
        const sockaddr_in address = address_of(host, 0);
        ucp_listener_params_t params{};
        params.field_mask =
            UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
        params.sockaddr = {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
        params.conn_handler.cb = [](ucp_conn_request_h request, void* argument) {
            static_cast<Server*>(argument)->asking_.push_back(request);
        };
        params.conn_handler.arg = this;
        listening_ = std::make_unique<Worker>(context_);
        serve(*listening_);
        ucp_listener_h listener = nullptr;
        check(ucp_listener_create(listening_->get(), &params, &listener), "listening");
        ucp_listener_attr_t found{};
        found.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        check(ucp_listener_query(listener, &found), "asking for the port");
        say_port(ntohs(reinterpret_cast<const sockaddr_in&>(found.sockaddr).sin_port));
    }
    void serve(Worker& worker) {
        worker.on_message(kRequest, &Server::on_request, this);
        loop_.add(worker);
    }
    Session& add_session() {
        auto session = std::make_unique<Session>();
        if (settings_.worker_each || (workers_.empty() && listening_ == nullptr)) {
            workers_.push_back(std::make_unique<Worker>(context_));
            serve(*workers_.back());
        }
        session->worker = workers_.empty() ? listening_.get() : workers_.back().get();
        sessions_.push_back(std::move(session));
        return *sessions_.back();
    }
    void accept_one(int listener) {
        const int fd = accept(listener, nullptr, nullptr);
        std::string address;
        take_address(fd, address);
        const std::uint64_t number = sessions_.size();
        Session& session = add_session();
        session.endpoint =
            open_endpoint(*session.worker, to_worker(address), settings_, &session.failed);
        put_address(fd, number, session.worker->address());
    }
    void accept_one(ucp_conn_request_h request) {
        const std::uint64_t number = sessions_.size();
        Session& session = add_session();
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = request;
        session.endpoint = open_endpoint(*session.worker, params, settings_, &session.failed);
        send(session.endpoint, kHello, {.peer = number}, nullptr, 0, settings_);
    }
    static ucs_status_t on_request(void* argument, const void* header, std::size_t, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param) {
        auto* const self = static_cast<Server*>(argument);
        Head head;
        std::memcpy(&head, header, sizeof(head));
        Session& session = *self->sessions_.at(head.peer);
        if (head.is_set == 0) {
            if (!session.failed) {
                send_value(session.endpoint, kReply, head, self->values_ + head.offset,
                           self->settings_);
            }
            return UCS_OK;
        }
        if (session.sink.size() < head.bytes) {
            session.sink.resize(head.bytes);
        }
        receive(*session.worker, data, bytes, param, session.sink.data() + head.at,
                [self, &session, head, bytes] {
                    session.come += bytes;
                    if (session.come == head.bytes && !session.failed) {
                        session.come = 0;
                        send(session.endpoint, kReply, head, nullptr, 0, self->settings_);
                    }
                });
        return UCS_OK;
    }

    const Settings settings_;
    ucp_context_h context_;
    Loop loop_;
    std::byte* const values_ = values();
    std::unique_ptr<Worker> listening_;
    std::vector<ucp_conn_request_h> asking_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::unique_ptr<Session>> sessions_;
};

// ---- clients ----

class Clients {
  public:
    Clients(const sockaddr_in& server, bool is_set, std::uint64_t bytes, std::size_t count,
            const Settings& settings)
        : settings_(settings),
          server_(server),
          is_set_(is_set),
          bytes_(bytes),
          context_(start_ucx()),
          loop_(settings.linger) {
        for (std::size_t number = 0; number < count; ++number) {
            clients_.push_back(std::make_unique<Client>(bytes, static_cast<unsigned>(number + 1)));
            connect_one(number);
        }
        do_once();
    }
    void run(Counted& counted) {
        counted_ = &counted;
        busy_ = clients_.size();
        for (auto& client : clients_) {
            begin(*client);
        }
        loop_.run([this] { return busy_ == 0; });
    }

  private:
    struct Client {
        Client(std::uint64_t bytes, unsigned seed)
            : memory(network::memory(bytes)), offsets(bytes, seed) {}
        Worker* worker = nullptr;
        ucp_ep_h endpoint = nullptr;
        bool failed = false;
        bool is_met = false;
        std::uint64_t peer = 0;
        std::byte* memory;
        Offsets offsets;
        std::uint64_t offset = 0;
        std::uint64_t come = 0;
    };

    void connect_one(std::size_t number) {
        Client& client = *clients_[number];
        if (settings_.worker_each || workers_.empty()) {
            workers_.push_back(std::make_unique<Worker>(context_));
            workers_.back()->on_message(kReply, &Clients::on_reply, this);
            workers_.back()->on_message(kHello, &Clients::on_hello, this);
            loop_.add(*workers_.back());
        }
        client.worker = workers_.back().get();
        if (settings_.listens) {
            ucp_ep_params_t params{};
            params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
            params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
            params.sockaddr = {reinterpret_cast<const sockaddr*>(&server_), sizeof(server_)};
            meeting_ = &client;
            client.endpoint = open_endpoint(*client.worker, params, settings_, &client.failed);
            loop_.run([&client] { return client.is_met || client.failed; });
        } else {
            const int fd = connect_to(server_);
            put_address(fd, 0, client.worker->address());
            std::string address;
            client.peer = take_address(fd, address);
            client.endpoint =
                open_endpoint(*client.worker, to_worker(address), settings_, &client.failed);
        }
        by_peer_[client.peer] = number;
    }
    // Lets each have one value, and looks at it.
    void do_once() {
        for (auto& client : clients_) {
            busy_ = 1;
            begin(*client);
            loop_.run([this, &client] { return busy_ == 0 || client->failed; });
            if (client->failed) {
                std::fprintf(stderr, "ucx_messages: the server is lost\n");
                std::exit(1);
            }
            if (!is_set_) {
                network::check(client->memory, bytes_, client->offset);
            }
        }
    }
    void begin(Client& client) {
        client.offset = client.offsets.next();
        client.come = 0;
        const Head head{
            .peer = client.peer, .is_set = is_set_, .bytes = bytes_, .offset = client.offset};
        if (is_set_) {
            send_value(client.endpoint, kRequest, head, client.memory, settings_);
        } else {
            send(client.endpoint, kRequest, head, nullptr, 0, settings_);
        }
    }
    void end(std::size_t number) {
        if (counted_ != nullptr && counted_->ended(number)) {
            begin(*clients_[number]);
        } else {
            --busy_;
        }
    }
    static ucs_status_t on_hello(void* argument, const void* header, std::size_t, void*,
                                 std::size_t, const ucp_am_recv_param_t*) {
        Client& client = *static_cast<Clients*>(argument)->meeting_;
        client.peer = static_cast<const Head*>(header)->peer;
        client.is_met = true;
        return UCS_OK;
    }
    static ucs_status_t on_reply(void* argument, const void* header, std::size_t, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param) {
        auto* const self = static_cast<Clients*>(argument);
        Head head;
        std::memcpy(&head, header, sizeof(head));
        const std::size_t number = self->by_peer_.at(head.peer);
        if (self->is_set_) {
            self->end(number);
            return UCS_OK;
        }
        Client& client = *self->clients_[number];
        receive(*client.worker, data, bytes, param, client.memory + head.at,
                [self, &client, number, bytes] {
                    client.come += bytes;
                    if (client.come == self->bytes_) {
                        self->end(number);
                    }
                });
        return UCS_OK;
    }

    const Settings settings_;
    const sockaddr_in server_;
    const bool is_set_;
    const std::uint64_t bytes_;
    ucp_context_h context_;
    Loop loop_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::map<std::uint64_t, std::size_t> by_peer_;
    Client* meeting_ = nullptr;
    Counted* counted_ = nullptr;
    std::size_t busy_ = 0;
};

}  // namespace

int main(int count, char** words) {
    const std::string_view what = count > 1 ? words[1] : "";
    if (what == "serve" && count >= 3) {
        Server(words[2], read_settings(count - 3, words + 3)).run();
    }
    if (what == "clients" && count >= 7) {
        const std::size_t clients = std::strtoul(words[6], nullptr, 10);
        const std::uint64_t bytes = std::strtoull(words[5], nullptr, 10);
        if (clients == 0 || bytes == 0 || bytes > kMostBytes) {
            std::fprintf(stderr, "ucx_messages: no clients, or values of no or too many bytes\n");
            return 2;
        }
        Clients all(address_of(words[2], std::atoi(words[3])), std::string_view(words[4]) == "set",
                    bytes, clients, read_settings(count - 7, words + 7));
        say_ready();
        for (Window window; read_window(window);) {
            Counted counted(window, clients);
            all.run(counted);
            counted.answer();
        }
        std::_Exit(0);
    }
    std::fprintf(stderr,
                 "usage: ucx_messages serve HOST SETTING...\n"
                 "       ucx_messages clients HOST PORT get|set BYTES CLIENTS SETTING...\n");
    return 2;
}

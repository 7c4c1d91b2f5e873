// ucxstore._core: the native core as Python sees it. No logic here, only conversion; the GIL is
// released wherever anything could wait.
#include <unistd.h>

#include <utility>

#include "base/fork.hpp"
#include "base/inherited.hpp"
#include "base/ucx_library.hpp"
#include "bindings/gil.hpp"
#include "bindings/py_allocation.hpp"
#include "bindings/py_connection.hpp"
#include "bindings/py_disk.hpp"
#include "bindings/py_join.hpp"
#include "bindings/py_log.hpp"
#include "bindings/py_result.hpp"
#include "bindings/py_sealing.hpp"
#include "bindings/py_source.hpp"
#include "cache/disk.hpp"
#include "local_client/local_client.hpp"
#include "memory/copier.hpp"
#include "memory/recycler.hpp"
#include "protocol/keys.hpp"
#include "server/server.hpp"
#include "storage/directory.hpp"
#include "storage/evicting.hpp"
#include "storage/memory.hpp"
#include "storage/spilling.hpp"
#include "ucx/address.hpp"
#include "ucx/fence.hpp"
#include "ucx/network.hpp"
#include "ucx_client/ucx_link.hpp"

using namespace nb::literals;

namespace ucxstore::py {
namespace {

SharedMemory sharing(bool shares) { return shares ? SharedMemory::on : SharedMemory::off; }

// A worker whose peer is still to come: the handshake needs its address.
template <typename Owner>
class Port {
  public:
    Port(std::shared_ptr<Owner> owner, std::unique_ptr<Worker> worker)
        : owner_(std::move(owner)), worker_(std::move(worker)), pid_(getpid()) {}
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    ~Port() {
        if (worker_ == nullptr) {
            return;
        }
        if (getpid() == pid_) {
            owner_->discard(std::move(worker_));
        } else {
            static_cast<void>(worker_.release());  // the parent's, which may not even be freed
            new std::shared_ptr<Owner>(std::move(owner_));
        }
    }

    nb::bytes address() const {
        require(worker_ != nullptr, "the port is in use");
        return to_bytes(worker_->address());
    }
    std::unique_ptr<Worker> take() {
        require(worker_ != nullptr, "the port is in use");
        return std::move(worker_);
    }
    const std::shared_ptr<Owner>& owner() const { return owner_; }

  private:
    std::shared_ptr<Owner> owner_;
    std::unique_ptr<Worker> worker_;
    const int pid_;
};

class ClientPort : public Port<Client> {
  public:
    ClientPort(std::shared_ptr<Client> owner, std::unique_ptr<Worker> worker,
               Connection::Integrity integrity)
        : Port(std::move(owner), std::move(worker)), integrity(integrity) {}

    const Connection::Integrity integrity;
};
using ServerPort = Port<UcxThread>;

// The link is closed where there is no memory for an object that would close it.
nb::object to_object(const std::shared_ptr<Link>& link) {
    try {
        auto made = std::make_unique<PyConnection>(link);
        nb::object object = nb::cast(made.get(), nb::rv_policy::take_ownership);
        made.release();
        return object;
    } catch (...) {
        link->close();
        throw;
    }
}

nb::typed<nb::object, PyConnection> attach_client(ClientPort& port, int fd, const nb::bytes& token,
                                                  const nb::bytes& address, const std::string& peer,
                                                  double timeout, const KeysTuple& keys) {
    Fd owned(fd);
    const Connection::Keys session_keys = to_keys(keys);
    const wire::Token session = to_token(token);
    const std::string remote = to_string(address);
    auto worker = port.take();
    std::shared_ptr<Connection> connection;
    {
        const WithoutGil released;
        connection = port.owner()->attach(std::move(worker), std::move(owned), session, remote,
                                          peer, port.integrity, session_keys);
    }
    std::shared_ptr<Link> link;
    try {
        link = std::make_shared<UcxLink>(port.owner(), connection);
    } catch (...) {
        port.owner()->close(connection);
        throw;
    }
    const nb::object object = to_object(link);
    // One round trip: both sides have each other's endpoint, and the lanes are chosen.
    nb::cast<PyConnection&>(object).ping(timeout);
    return object;
}

std::vector<std::tuple<nb::bytes, int>> tcp_ends(const nb::bytes& address) {
    const std::string packed = to_string(address);
    std::vector<std::tuple<nb::bytes, int>> found;
    try {
        for (const auto& [host, port] : WorkerAddress::read(packed).ends()) {
            found.emplace_back(nb::bytes(host.bytes.data(), host.v6 ? 16 : 4), port);
        }
    } catch (const Error&) {  // one of a later UCX
    }
    return found;
}

// ucxstore.base.grants.Bounds.
using BoundsTuple = std::tuple<std::string, bool, std::optional<std::int64_t>, int>;

Bounds to_bounds(const BoundsTuple& tuple) {
    const auto& [prefix, read_only, expires, role] = tuple;
    require(role >= 0 && role <= static_cast<int>(Role::owner), "an unknown role");
    return {prefix, read_only, expires, static_cast<Role>(role)};
}

void attach_server(ServerPort& port, int fd, const nb::bytes& token, const nb::bytes& address,
                   const std::string& peer, const BoundsTuple& bounds, const std::string& origin,
                   const KeysTuple& keys) {
    Fd owned(fd);
    const UcxThread::Keys session_keys = to_keys(keys);
    const wire::Token session = to_token(token);
    const std::string remote = to_string(address);
    const Admitted client{peer, to_bounds(bounds), origin};
    auto worker = port.take();
    const WithoutGil released;
    port.owner()->attach(std::move(worker), std::move(owned), session, remote, client,
                         session_keys);
}

// Values of any dtype, as bytes.
using Values = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void place(const Values& values, const ArrayTuple& target) {
    const Memory memory = to_memory(target);
    require(values.size() == memory.size(), "values that are not of their place's size");
    const auto* const source = reinterpret_cast<const std::byte*>(values.data());
    const WithoutGil released;
    std::vector<ucp_dt_iov_t> pieces;
    memory.pieces(0, memory.size(), pieces);
    Copier(pieces).scatter(0, source, memory.size(), Write::past_caches);
}

class PyClient {
  public:
    PyClient(const Options& options, bool polling)
        : client_(std::make_shared<Client>(options, polling)), pid_(getpid()) {}
    PyClient(const PyClient&) = delete;
    PyClient& operator=(const PyClient&) = delete;
    ~PyClient() {
        if (getpid() != pid_) {
            abandon();
        }
    }

    nb::typed<nb::object, ClientPort> open(int fd, Connection::Integrity integrity,
                                           bool shares_memory) {
        std::unique_ptr<Worker> worker;
        {
            const WithoutGil released;
            worker = client_->open(fd, sharing(shares_memory));
        }
        return nb::cast(new ClientPort(client_, std::move(worker), integrity),
                        nb::rv_policy::take_ownership);
    }

    void close(double timeout) {
        const WithoutGil released;
        client_->close(milliseconds(timeout));
    }

    void abandon() {
        if (client_ != nullptr) {
            close_inherited_sockets();
            separate_from_parent();
            new std::shared_ptr<Client>(std::move(client_));  // leaked, on purpose
        }
    }

  private:
    std::shared_ptr<Client> client_;
    const int pid_;
};

class PyLocalClient {
  public:
    PyLocalClient() : client_(std::make_shared<LocalClient>()), pid_(getpid()) {}
    PyLocalClient(const PyLocalClient&) = delete;
    PyLocalClient& operator=(const PyLocalClient&) = delete;
    ~PyLocalClient() {
        if (getpid() != pid_) {
            abandon();
        }
    }

    nb::typed<nb::object, PyConnection> attach(int fd, const nb::bytes& token,
                                               const std::string& peer) {
        Fd owned(fd);
        const wire::Token session = to_token(token);
        std::shared_ptr<LocalLink> link;
        {
            const WithoutGil released;
            link = client_->attach(std::move(owned), session, peer);
        }
        return to_object(link);
    }

    void close() {
        const WithoutGil released;
        client_->close();
    }

    void abandon() {
        if (client_ != nullptr) {
            close_inherited_sockets();
            new std::shared_ptr<LocalClient>(std::move(client_));  // leaked, on purpose
        }
    }

  private:
    std::shared_ptr<LocalClient> client_;
    const int pid_;
};

class PyServer {
  public:
    // Options and whether to poll; whether to make no use of UCX until a client needs it; whether
    // clients may use its shared memory.
    using Ucx = std::tuple<Options, bool, bool, bool>;

    PyServer(Storages storages, int threads, const Ucx& ucx, bool read_only,
             std::optional<std::uint64_t> max_sessions)
        : server_(std::move(storages), threads,
                  {std::get<0>(ucx), std::get<1>(ucx), std::get<2>(ucx), sharing(std::get<3>(ucx))},
                  read_only, max_sessions.value_or(Places::kNoLimit)) {}
    static void make(PyServer* self, const std::shared_ptr<Storage>& storage, int threads,
                     const Ucx& ucx, bool read_only, const std::shared_ptr<Spaces>& scratch,
                     std::optional<std::uint64_t> max_sessions) {
        new (self) PyServer({storage, scratch}, threads, ucx, read_only, max_sessions);
    }
    static void make_cached(PyServer* self, const PyCachedSource& source, int threads,
                            const Ucx& ucx, bool read_only, const std::shared_ptr<Spaces>& scratch,
                            std::optional<std::uint64_t> max_sessions) {
        new (self) PyServer({source.source, scratch}, threads, ucx, read_only, max_sessions);
    }

    nb::typed<nb::object, ServerPort> open(int thread, int fd, bool shares_memory) {
        std::shared_ptr<UcxThread> owner;
        std::unique_ptr<Worker> worker;
        {
            const WithoutGil released;
            owner = server_.thread(thread);
            worker = owner->open(fd, sharing(shares_memory));
        }
        return nb::cast(new ServerPort(owner, std::move(worker)), nb::rv_policy::take_ownership);
    }

    void join(int thread, int fd, const nb::bytes& token, const std::string& peer,
              const BoundsTuple& bounds, const std::string& origin, const nb::bytes& answer) {
        Fd owned(fd);
        const wire::Token session = to_token(token);
        const std::string_view joined(answer.c_str(), answer.size());
        const Admitted client{peer, to_bounds(bounds), origin};
        const WithoutGil released;
        server_.local_thread(thread)->attach(std::move(owned), session, client, joined);
    }

    bool make_room(const std::string& origin, std::size_t waiting, bool is_short) {
        const WithoutGil released;
        return server_.make_room(origin, waiting, is_short);
    }

    void tell(std::string name, const std::shared_ptr<Count>& count) {
        server_.tell(std::move(name), [count] { return count->load(); });
    }
    void tell_disk(std::string name, const std::shared_ptr<DiskCache>& disk) {
        server_.tell(std::move(name), [disk] { return disk->bytes(); });
    }

    // Looks at what clients have pinned, and may give arenas back.
    nb::bytes stats_json() const {
        std::string text;
        {
            const WithoutGil released;
            text = server_.stats_json();
        }
        return nb::bytes(text.data(), text.size());
    }

    nb::bytes sessions_json(std::uint64_t after) {
        std::string text;
        {
            const WithoutGil released;
            text = server_.sessions_json(after);
        }
        return to_bytes(text);
    }

    std::size_t kick(std::optional<std::uint64_t> session, const std::string& origin,
                     std::uint64_t but) {
        const WithoutGil released;
        return server_.kick(session, origin, but);
    }

    using Operator = nb::typed<nb::callable, nb::bytes(nb::bytes, std::uint64_t, std::string)>;
    void set_operators(const Operator& handler) {
        // Whoever lets go of it last may be any thread.
        const std::shared_ptr<nb::object> held(new nb::object(handler), [](nb::object* object) {
            const nb::gil_scoped_acquire gil;
            delete object;
        });
        server_.set_operators([held](const Operators::Request& request) {
            const nb::gil_scoped_acquire gil;
            try {
                return to_string(nb::cast<nb::bytes>(
                    (*held)(to_bytes(request.text), request.session, nb::cast(request.peer))));
            } catch (const nb::python_error& error) {  // which goes under the GIL
                throw Error(ErrorKind::storage, error.what());
            }
        });
    }

    std::map<std::string, std::uint64_t> failures() const {
        std::map<std::string, std::uint64_t> found;
        for (std::size_t i = 0; i < kFailings.size(); ++i) {
            found.emplace(kFailings[i], server_.counters().failed[i]);
        }
        return found;
    }

    // By kind: how many are in each bucket, and the seconds of all.
    using Latency = std::pair<std::vector<std::uint64_t>, double>;
    std::map<std::string, Latency> latencies() const {
        std::map<std::string, Latency> found;
        for (std::size_t i = 0; i < Latencies::kKinds.size(); ++i) {
            const auto one = server_.counters().latencies.histogram(i);
            found.emplace(Latencies::kKinds[i],
                          Latency{{one.counts.begin(), one.counts.end()}, one.seconds});
        }
        return found;
    }

    bool answers(double timeout) {
        const WithoutGil released;
        return server_.answers(milliseconds(timeout));
    }

    std::uint64_t sessions() { return server_.sessions(); }

    void renew_sessions(double timeout) {
        const WithoutGil released;
        server_.renew_sessions(milliseconds(timeout));
    }

    bool drain(double timeout) {
        const WithoutGil released;
        return server_.drain(milliseconds(timeout));
    }

    void close(double timeout) {
        const WithoutGil released;
        server_.close(milliseconds(timeout));
    }

  private:
    Server server_;
};

void make_memory(MemoryStorage* self, std::uint64_t limit, bool visible, std::uint64_t mapped_limit,
                 std::optional<std::string> hint, std::optional<std::vector<std::string>> evict,
                 const std::optional<std::string>& spill) {
    std::unique_ptr<Shedding> shedding;
    if (evict) {
        shedding = std::make_unique<Evicting>(std::move(*evict), limit);
    } else if (spill) {
        shedding = std::make_unique<Spilling>(*spill, hint.value_or(""));
    }
    const auto quota =
        hint ? Quota::of_memory(limit, std::move(*hint)) : std::make_shared<Quota>(limit);
    auto shelf = visible ? shared::Shelf::make({.most_held = mapped_limit,
                                                .counts_uses = shedding != nullptr,
                                                .keep_bytes = Recycler::instance().limit(),
                                                .bound = Quota::memory_of(quota)})
                         : nullptr;
    new (self) MemoryStorage(quota, false, std::move(shelf), std::move(shedding));
}

// The library that ucxstore/base/ucx_library.py chooses.
UcxLibrary choose_ucx() {
    const nb::gil_scoped_acquire gil;
    const nb::object chosen = nb::module_::import_("ucxstore.base.ucx_library").attr("load")();
    return {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(chosen.attr("handle"))),
            nb::cast<bool>(chosen.attr("has_hooks"))};
}

const char* ucx_version() {
    load_ucx();
    return ucp_get_version_string();
}

void shut(int fd) {
    const auto end = own_end(fd);
    require(end.has_value(), "it is no socket of IP's");
    Fence(fd, *end);
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The native core of ucxstore: UCX, without the GIL.";
    // Clients and connections live in globals of ucxstore.client.runtime until the interpreter is
    // gone.
    nb::set_leak_warnings(false);
    nb::register_exception_translator(translate);
    set_ucx_loader(&choose_ucx);
    module.attr("PROTOCOL_VERSION") = wire::kProtocolVersion;
    module.attr("MAX_KEY_BYTES") = wire::kMaxKeyBytes;
    module.attr("SCRATCH_FOLDER") =
        nb::str(wire::kScratchFolder.data(), wire::kScratchFolder.size());
    module.def(
        "allocate", [](std::uint64_t size) { return to_numpy(allocate_region(size)); }, "size"_a,
        "Memory of `size` bytes, not initialised, that is recycled after use.");
    nb::class_<PyResultMemory>(module, "ResultMemory",
                               "Memory for a result, that values may be mapped into.")
        .def(nb::init<std::uint64_t>(), "size"_a)
        .def("array", [](const PyResultMemory& self) { return to_numpy(self.memory); })
        .def("be_eager", [](const PyResultMemory& self) { self.memory->eager = true; })
        .def_prop_ro("mapped", [](const PyResultMemory& self) { return self.memory->mapped(); });
    module.def("place", &place, "values"_a, "target"_a,
               "Copy values to their places in an array that is larger than the caches.");
    module.def("join", &join_values, "values"_a,
               "Values of whole pages that lie in shared memory or in files, mapped one after the "
               "other; None where that cannot be.");
    module.def("ucx_version", &ucx_version);
    module.def(
        "tcp_ends", &tcp_ends, "address"_a,
        "Where the worker of a UCX address listens over TCP, but for the loopback: the bytes "
        "of each IP address, and the port. None where the address cannot be read.");
    module.def("user_at_other_end", &user_at_other_end, "fd"_a,
               "The user id of the process at the other end of a connection of this host; None "
               "where the kernel does not tell.");
    module.def("shut", &shut, "fd"_a,
               "Shut a socket that listens over IP to all, as those of UCX are at first. Raises "
               "ConnectError where the kernel has no way that this process may use.");

    nb::class_<PyOperation>(module, "Operation")
        .def_prop_ro("done", &PyOperation::done)
        .def("wait", &PyOperation::wait)
        .def("result", &PyOperation::result)
        .def("cancel", &PyOperation::cancel)
        .def_static("end_unwaited", &PyOperation::end_unwaited);

    nb::class_<PyCompletions>(module, "Completions")
        .def(nb::init<>())
        .def("fileno", [](const PyCompletions& self) { return self.queue->fd(); })
        .def("drain", &PyCompletions::drain);

    bind_allocation(module);
    bind_connection(module);
    bind_sealing(module);

    nb::class_<ClientPort>(module, "ClientPort")
        .def_prop_ro("address", &ClientPort::address)
        .def("attach", &attach_client, "fd"_a, "token"_a, "address"_a, "peer"_a, "timeout"_a,
             "keys"_a.none() = nb::none());
    nb::class_<ServerPort>(module, "ServerPort")
        .def_prop_ro("address", &ServerPort::address)
        .def("attach", &attach_server, "fd"_a, "token"_a, "address"_a, "peer"_a, "bounds"_a,
             "origin"_a, "keys"_a.none() = nb::none());

    nb::class_<PyClient>(module, "Client")
        .def(nb::init<const Options&, bool>(), "options"_a, "polling"_a)
        .def("open", &PyClient::open, "fd"_a = -1, "integrity"_a.none() = nb::none(),
             "shares_memory"_a = false)
        .def("close", &PyClient::close, "timeout"_a)
        .def("abandon", &PyClient::abandon);

    nb::class_<PyLocalClient>(module, "LocalClient")
        .def(nb::init<>())
        .def("attach", &PyLocalClient::attach, "fd"_a, "token"_a, "peer"_a)
        .def("close", &PyLocalClient::close)
        .def("abandon", &PyLocalClient::abandon);

    nb::class_<Storage>(module, "Storage");
    nb::class_<MemoryStorage, Storage>(module, "MemoryStorage")
        .def(
            "__init__", &make_memory, "limit"_a = std::numeric_limits<std::uint64_t>::max(),
            "visible"_a = false, "mapped_limit"_a = std::numeric_limits<std::uint64_t>::max(),
            "hint"_a.none() = nb::none(), "evict"_a.none() = nb::none(),
            "spill"_a.none() = nb::none(), nb::call_guard<WithoutGil>(),
            "Values in memory; `visible`: which other processes may be let see, and hold so many "
            "bytes of. With a `hint`, which ends the text of a refusal, `limit` is that of the "
            "memory itself, with all that values need besides. What becomes of values that have no "
            "room: those whose keys begin with one of `evict` are lost; or all go to files of the "
            "directory `spill`, which nobody else uses.")
        .def("leave", &MemoryStorage::leave, nb::call_guard<WithoutGil>(),
             "Remove what was spilled; the values are used no more.")
        .def_prop_ro("held", &MemoryStorage::held);
    nb::class_<DirectoryStorage, Storage>(module, "DirectoryStorage")
        .def(
            "__init__",
            [](DirectoryStorage* self, const std::string& root, const std::string& durability,
               const std::string& writers) {
                new (self)
                    DirectoryStorage(root, parse_durability(durability), Writers::parse(writers));
            },
            "root"_a, "durability"_a = "atomic", "writers"_a = "none", nb::call_guard<WithoutGil>(),
            "Values as files; `durability`: \"none\", \"atomic\" or \"fsync\"; `writers`: "
            "\"none\", \"alone\" or \"several\" servers write to the directory.")
        .def("fileno", &DirectoryStorage::descriptor, "The descriptor of the directory.")
        .def("leave", &DirectoryStorage::leave, nb::call_guard<WithoutGil>(),
             "Leave the directory to other servers; nothing is written any more.");

    nb::class_<Spaces>(module, "Spaces")
        .def(
            "__init__",
            [](Spaces* self, const MemoryStorage& memory, bool visible,
               std::optional<std::uint64_t> limit) {
                auto room = memory.quota();
                if (limit) {
                    room = std::make_shared<Quota>(*limit, "scratch space", std::move(room));
                }
                new (self) Spaces(std::move(room), visible);
            },
            "memory"_a, "visible"_a = false, "limit"_a.none() = nb::none(),
            "Scratch spaces that take of the limit of this memory, and of another one of their "
            "own; `visible`: other processes may be let see each.");

    bind_disk(module);
    bind_log(module);
    bind_source(module);

    nb::class_<Count>(module, "Counter", "A number that any thread may add to.")
        .def(nb::init<>())
        .def(
            "add", [](Count& self, std::uint64_t amount) { self += amount; }, "amount"_a = 1)
        .def("__int__", [](const Count& self) { return self.load(); });
    nb::class_<PyServer>(module, "Server")
        .def("__init__", &PyServer::make, "storage"_a, "threads"_a, "ucx"_a, "read_only"_a,
             "scratch"_a.none() = nb::none(), "max_sessions"_a.none() = nb::none())
        .def("__init__", &PyServer::make_cached, "storage"_a, "threads"_a, "ucx"_a, "read_only"_a,
             "scratch"_a.none() = nb::none(), "max_sessions"_a.none() = nb::none())
        .def("open", &PyServer::open, "thread"_a, "fd"_a = -1, "shares_memory"_a = false)
        .def("join", &PyServer::join, "thread"_a, "fd"_a, "token"_a, "peer"_a, "bounds"_a,
             "origin"_a, "answer"_a)
        .def("make_room", &PyServer::make_room, "origin"_a, "waiting"_a, "is_short"_a)
        .def("tell", &PyServer::tell, "name"_a, "count"_a,
             "Tell this counter with its own ones, by this name. Before it has sessions.")
        .def("tell", &PyServer::tell_disk, "name"_a, "disk"_a,
             "Likewise, the bytes that a disk cache takes.")
        .def("stats_json", &PyServer::stats_json, "All counters as JSON: see docs/wire.md.")
        .def("sessions_json", &PyServer::sessions_json, "after"_a,
             "Clients of sessions with larger numbers than `after`: see docs/wire.md.")
        .def("kick", &PyServer::kick, "session"_a.none(), "origin"_a, "but"_a,
             "End the session of this number, or all of this origin, but not session `but`; return "
             "how many.")
        .def("set_operators", &PyServer::set_operators, "handler"_a,
             "Have `handler` answer what operators ask, on a thread of its own, until close(): of "
             "a request, who asks by number and by name.")
        .def("failures", &PyServer::failures, "Requests that have failed, by why.")
        .def("latencies", &PyServer::latencies,
             "Of each kind of request: how many took up to 10 us, twice that, and so on, and the "
             "seconds of all.")
        .def("answers", &PyServer::answers, "timeout"_a,
             "Whether all threads run what they are given, within so many seconds.")
        .def_prop_ro("sessions", &PyServer::sessions)
        .def("renew_sessions", &PyServer::renew_sessions, "timeout"_a)
        .def("drain", &PyServer::drain, "timeout"_a)
        .def("close", &PyServer::close, "timeout"_a);
}

}  // namespace ucxstore::py

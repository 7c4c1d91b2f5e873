#include "bindings/py_server.hpp"

#include <nanobind/stl/variant.h>

#include <utility>
#include <variant>

#include "bindings/gil.hpp"
#include "bindings/py_sealing.hpp"
#include "bindings/py_source.hpp"
#include "cache/disk.hpp"
#include "server/server.hpp"
#include "ucx/port.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

using ServerPort = ucx::Port<ucx_server::UcxThread>;

// ucxstore.base.grants.Bounds.
using BoundsTuple = std::tuple<std::string, bool, std::optional<std::int64_t>, int>;

sessions::Bounds to_bounds(const BoundsTuple& tuple) {
    const auto& [prefix, read_only, expires, role] = tuple;
    base::require(role >= 0 && role <= static_cast<int>(sessions::Role::owner), "an unknown role");
    return {prefix, read_only, expires, static_cast<sessions::Role>(role)};
}

// NOLINTNEXTLINE(readability-function-size): what a handshake has agreed on
void attach_server(ServerPort& port, int fd, const nb::bytes& token, const nb::bytes& address,
                   const std::string& peer, const BoundsTuple& bounds, const std::string& origin) {
    base::Fd owned(fd);
    const protocol::Token session = to_token(token);
    const std::string remote = to_string(address);
    const sessions::Admitted client{peer, to_bounds(bounds), origin};
    auto worker = port.take();
    const WithoutGil released;
    port.owner()->attach(std::move(worker), std::move(owned), session, remote, client);
}

struct Counter : std::enable_shared_from_this<Counter> {
    base::Count count = 0;
};

using Stored = std::variant<std::shared_ptr<storage::Storage>, const PyCachedSource*>;

sessions::Storages to_storages(const Stored& stored,
                               const std::shared_ptr<storage::Spaces>& scratch,
                               const std::shared_ptr<cache::DecodedValues>& decoded) {
    const auto* const storage = std::get_if<std::shared_ptr<storage::Storage>>(&stored);
    auto storages =
        storage != nullptr
            ? sessions::Storages(*storage, scratch)
            : sessions::Storages(std::get<const PyCachedSource*>(stored)->source, scratch);
    storages.decoded = decoded;
    if (decoded != nullptr && storages.source != nullptr) {
        storages.source->note_versions();
    }
    return storages;
}

class PyServer {
  public:
    // Options and whether to poll; whether to make no use of UCX until a client needs it; whether
    // clients may use its shared memory.
    using Ucx = std::tuple<ucx::Options, bool, bool, bool>;

    PyServer(const Stored& stored, int threads, const Ucx& ucx, bool read_only,
             const std::shared_ptr<storage::Spaces>& scratch,
             std::optional<std::uint64_t> max_sessions,
             const std::shared_ptr<cache::DecodedValues>& decoded)
        : server_(
              to_storages(stored, scratch, decoded), threads,
              {std::get<0>(ucx), std::get<1>(ucx), std::get<2>(ucx), to_sharing(std::get<3>(ucx))},
              read_only, max_sessions.value_or(sessions::Places::kNoLimit)) {}

    nb::typed<nb::object, ServerPort> open(int thread, int fd, bool shares_memory) {
        std::shared_ptr<ucx_server::UcxThread> owner;
        std::unique_ptr<ucx::Worker> worker;
        {
            const WithoutGil released;
            owner = server_.thread(thread);
            worker = owner->open(fd, to_sharing(shares_memory));
        }
        return nb::cast(new ServerPort(owner, std::move(worker)), nb::rv_policy::take_ownership);
    }

    void join(int thread, int fd, const nb::bytes& token, const std::string& peer,
              const BoundsTuple& bounds, const std::string& origin, const nb::bytes& answer) {
        base::Fd owned(fd);
        const protocol::Token session = to_token(token);
        const std::string_view joined(answer.c_str(), answer.size());
        const sessions::Admitted client{peer, to_bounds(bounds), origin};
        const WithoutGil released;
        server_.local_thread(thread)->attach(std::move(owned), session, client, joined);
    }

    // A session on the connection that the handshake came over.
    // NOLINTNEXTLINE(readability-function-size): what a handshake has agreed on
    void stay(int thread, int fd, const nb::bytes& token, const std::string& peer,
              const BoundsTuple& bounds, const std::string& origin, const nb::bytes& answer,
              bool checked, const KeysTuple& keys) {
        base::Fd owned(fd);
        const stream::Protection protection{checked, to_keys(keys)};
        const protocol::Token session = to_token(token);
        const std::string_view said(answer.c_str(), answer.size());
        const sessions::Admitted client{peer, to_bounds(bounds), origin};
        const WithoutGil released;
        server_.local_thread(thread)->attach_remote(std::move(owned), session, client, said,
                                                    protection);
    }

    bool make_room(const std::string& origin, std::size_t waiting, bool is_short) {
        const WithoutGil released;
        return server_.make_room(origin, waiting, is_short);
    }

    void tell(std::string name, const std::shared_ptr<Counter>& counter) {
        server_.tell(std::move(name), [counter] { return counter->count.load(); });
    }
    void tell_disk(std::string name, const std::shared_ptr<cache::DiskCache>& disk) {
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
            with_gil([object] { delete object; });
        });
        server_.set_operators([held](const sessions::Operators::Request& request) {
            std::string reply;
            with_gil([&] {
                try {
                    reply = to_string(nb::cast<nb::bytes>(
                        (*held)(to_bytes(request.text), request.session, nb::cast(request.peer))));
                } catch (const nb::python_error& error) {  // which goes under the GIL
                    throw base::Error(base::ErrorKind::storage, error.what());
                }
            });
            return reply;
        });
    }

    std::map<std::string, std::uint64_t> failures() const {
        std::map<std::string, std::uint64_t> found;
        for (std::size_t i = 0; i < base::kFailings.size(); ++i) {
            found.emplace(base::kFailings[i], server_.counters().failed[i]);
        }
        return found;
    }

    // By kind: how many are in each bucket, and the seconds of all.
    using Latency = std::pair<std::vector<std::uint64_t>, double>;
    std::map<std::string, Latency> latencies() const {
        std::map<std::string, Latency> found;
        for (std::size_t i = 0; i < base::Latencies::kKinds.size(); ++i) {
            const auto one = server_.counters().latencies.histogram(i);
            found.emplace(base::Latencies::kKinds[i],
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
    server::Server server_;
};

}  // namespace

void bind_server(nb::module_& module) {
    nb::class_<ServerPort>(module, "ServerPort")
        .def_prop_ro("address", [](const ServerPort& self) { return to_bytes(self.address()); })
        .def("attach", &attach_server, "fd"_a, "token"_a, "address"_a, "peer"_a, "bounds"_a,
             "origin"_a);

    nb::class_<Counter>(module, "Counter", "A number that any thread may add to.")
        .def(nb::new_([] { return std::make_shared<Counter>(); }))
        .def(
            "add", [](Counter& self, std::uint64_t amount) { self.count += amount; },
            "amount"_a = 1)
        .def("__int__", [](const Counter& self) { return self.count.load(); });
    nb::class_<PyServer>(module, "Server")
        .def(nb::init<const Stored&, int, const PyServer::Ucx&, bool,
                      const std::shared_ptr<storage::Spaces>&, std::optional<std::uint64_t>,
                      const std::shared_ptr<cache::DecodedValues>&>(),
             "storage"_a, "threads"_a, "ucx"_a, "read_only"_a, "scratch"_a.none() = nb::none(),
             "max_sessions"_a.none() = nb::none(), "decoded"_a.none() = nb::none())
        .def("open", &PyServer::open, "thread"_a, "fd"_a = -1, "shares_memory"_a = false)
        .def("join", &PyServer::join, "thread"_a, "fd"_a, "token"_a, "peer"_a, "bounds"_a,
             "origin"_a, "answer"_a)
        .def("stay", &PyServer::stay, "thread"_a, "fd"_a, "token"_a, "peer"_a, "bounds"_a,
             "origin"_a, "answer"_a, "checked"_a, "keys"_a.none() = nb::none())
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

}  // namespace ucxstore::bindings

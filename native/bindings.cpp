// ucxstore._core: the native core as Python sees it. No logic here, only conversion; the GIL is
// released wherever anything could wait.
#include "client.hpp"
#include "control.hpp"
#include "server.hpp"
#include "status.hpp"

#include "backing/directory.hpp"
#include "backing/memory.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

namespace nb = nanobind;
using namespace nb::literals;

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// How often a waiting main thread looks for signals (Ctrl-C).
constexpr auto kSignalPoll = 50ms;

const char* exception_name(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::argument: return nullptr;  // the builtin ValueError
        case ErrorKind::invalid_key: return "InvalidKeyError";
        case ErrorKind::connect: return "ConnectError";
        case ErrorKind::server_lost: return "ServerLostError";
        case ErrorKind::timeout: return "RequestTimeoutError";
        case ErrorKind::cancelled: return "OperationCancelledError";
        case ErrorKind::read_only: return "ReadOnlyServerError";
        case ErrorKind::value_too_large: return "ValueTooLargeError";
        case ErrorKind::chunk_size: return "ChunkSizeError";
        case ErrorKind::backing: return "BackingError";
        case ErrorKind::protocol: return "ProtocolError";
    }
    return "UcxStoreError";
}

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const Error& error) {
        const char* name = exception_name(error.kind());
        if (name == nullptr) {
            PyErr_SetString(PyExc_ValueError, error.what());
            return;
        }
        const nb::object type = nb::module_::import_("ucxstore.errors").attr(name);
        PyErr_SetString(type.ptr(), error.what());
    }
}

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000));
}

wire::Token to_token(const nb::bytes& bytes) {
    wire::Token token;
    if (bytes.size() != token.size()) {
        throw Error(ErrorKind::argument, "a session token has 16 bytes");
    }
    std::memcpy(token.data(), bytes.data(), token.size());
    return token;
}

std::string to_string(const nb::bytes& bytes) {
    return {static_cast<const char*>(bytes.data()), bytes.size()};
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// ---------------------------------------------------------------------------------------------
// Arrays as Python describes them: (address, shape, strides in bytes, itemsize).

struct Array {
    std::byte* base;
    std::vector<Dim> dims;
    std::uint64_t itemsize;
};

using ArrayTuple = std::tuple<std::uint64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                              std::uint64_t>;

Array to_array(const ArrayTuple& tuple) {
    const auto& [address, shape, strides, itemsize] = tuple;
    if (shape.size() != strides.size()) {
        throw Error(ErrorKind::argument, "shape and strides of different lengths");
    }
    Array array{reinterpret_cast<std::byte*>(address), {}, itemsize};
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis] < 0) {
            throw Error(ErrorKind::argument, "a negative length in a shape");
        }
        array.dims.push_back({static_cast<std::uint64_t>(shape[axis]), strides[axis]});
    }
    return array;
}

Memory to_memory(const ArrayTuple& tuple) {
    const Array array = to_array(tuple);
    return {array.base, Layout::strided(0, array.itemsize, array.dims)};
}

// A part of an array: `count` elements an axis from `start`, both checked against it.
Layout part(const Array& array, const std::int64_t* start, const std::int64_t* count) {
    std::int64_t offset = 0;
    std::vector<Dim> dims(array.dims.size());
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        const auto length = static_cast<std::int64_t>(array.dims[axis].count);
        if (start[axis] < 0 || count[axis] < 1 || start[axis] > length ||
            count[axis] > length - start[axis]) {
            throw Error(ErrorKind::argument, "a box outside its array, on axis " +
                                                 std::to_string(axis));
        }
        offset += start[axis] * array.dims[axis].stride;
        dims[axis] = {static_cast<std::uint64_t>(count[axis]), array.dims[axis].stride};
    }
    return Layout::strided(offset, array.itemsize, dims);
}

// A chunk as it is stored: C order, without gaps.
Array stored_chunk(const std::vector<std::int64_t>& shape, std::uint64_t itemsize) {
    Array chunk{nullptr, {}, itemsize};
    auto stride = static_cast<std::int64_t>(itemsize);
    for (const std::int64_t length : shape) {
        chunk.dims.push_back({static_cast<std::uint64_t>(length), 0});
    }
    for (auto dim = chunk.dims.rbegin(); dim != chunk.dims.rend(); ++dim) {
        dim->stride = stride;
        stride *= static_cast<std::int64_t>(dim->count);
    }
    return chunk;
}

// A Python list of ints, without a Python-level loop.
std::vector<std::int64_t> to_integers(const nb::list& list, std::size_t expected) {
    std::vector<std::int64_t> numbers;
    numbers.reserve(expected);
    for (const nb::handle item : list) {
        const long long number = PyLong_AsLongLong(item.ptr());
        if (number == -1 && PyErr_Occurred()) {
            throw nb::python_error();
        }
        numbers.push_back(number);
    }
    if (numbers.size() != expected) {
        throw Error(ErrorKind::argument, "boxes do not match the keys");
    }
    return numbers;
}

// ---------------------------------------------------------------------------------------------
// Operations. In flight, the registry keeps the Python object, and with it the owners of the
// memory, alive: whoever lets go of an operation early frees nothing under UCX. It is touched with
// the GIL only.

class PyOperation;

std::unordered_map<std::uint64_t, nb::object>& registry() {
    static auto* operations = new std::unordered_map<std::uint64_t, nb::object>();
    return *operations;  // never destroyed: Python may be gone by then
}

using Convert = std::function<nb::object(Operation&)>;

class PyOperation {
  public:
    PyOperation(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection,
                std::shared_ptr<Operation> operation, nb::object owners, Convert convert)
        : client_(std::move(client)),
          connection_(std::move(connection)),
          operation_(std::move(operation)),
          owners_(std::move(owners)),
          convert_(std::move(convert)) {}

    bool done() const { return operation_->done(); }

    nb::object wait() {
        while (true) {
            bool done = false;
            {
                const nb::gil_scoped_release released;
                done = operation_->wait_for(kSignalPoll);
            }
            if (done) {
                return result();
            }
            if (PyErr_CheckSignals() != 0) {
                nb::python_error interrupted;
                cancel();
                {
                    const nb::gil_scoped_release released;
                    while (!operation_->wait_for(1s)) {
                    }
                }
                retire();
                throw interrupted;
            }
        }
    }

    nb::object result() {
        if (!done()) {
            throw Error(ErrorKind::argument, "the operation is not done");
        }
        retire();
        operation_->check();
        return convert_(*operation_);
    }

    void cancel() {
        const nb::gil_scoped_release released;
        client_->cancel(connection_, operation_);
    }

    std::uint64_t id() const { return operation_->id; }

    // UCX is done with the memory: the owners may go. If it is not, they never may.
    void retire() {
        if (!operation_->leaked()) {
            owners_.reset();
            registry().erase(operation_->id);
        }
    }

  private:
    std::shared_ptr<Client> client_;
    std::shared_ptr<Connection> connection_;
    std::shared_ptr<Operation> operation_;
    nb::object owners_;
    Convert convert_;
};

class PyCompletions {
  public:
    PyCompletions() : queue(std::make_shared<CompletionQueue>()) {}

    nb::list drain() {
        nb::list done;
        for (const std::uint64_t id : queue->drain()) {
            const auto found = registry().find(id);
            if (found != registry().end()) {
                done.append(found->second);
            }
        }
        return done;
    }

    const std::shared_ptr<CompletionQueue> queue;
};

// numpy array over a region, which it keeps alive.
nb::object to_numpy(const std::shared_ptr<Region>& region) {
    auto* holder = new std::shared_ptr<Region>(region);
    const nb::capsule owner(holder, [](void* pointer) noexcept {
        delete static_cast<std::shared_ptr<Region>*>(pointer);
    });
    return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(
        region->data(), {static_cast<std::size_t>(region->size())}, owner));
}

std::span<const std::byte> reply_bytes(const Item& item) {
    return {item.owned->data(), item.owned->size()};
}

// ---------------------------------------------------------------------------------------------
// A connection: makes operations of a caller's arguments.

class PyConnection {
  public:
    PyConnection(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection)
        : client_(std::move(client)), connection_(std::move(connection)), pid_(getpid()) {}
    PyConnection(const PyConnection&) = delete;
    PyConnection& operator=(const PyConnection&) = delete;
    ~PyConnection() {
        if (getpid() == pid_) {
            close();
        } else {
            leak();
        }
    }

    bool alive() const { return !connection_->failed(); }
    std::string peer() const { return connection_->peer(); }
    void close() { client_->close(connection_); }
    std::vector<std::string> lanes() {
        const nb::gil_scoped_release released;
        return client_->lanes(connection_);
    }

    using Ranges = std::vector<std::tuple<int, std::uint64_t, std::uint64_t>>;

    nb::object get(const std::vector<std::string>& keys, const std::vector<Ranges>& ranges,
                   double timeout, PyCompletions* completions) {
        auto operation = make(keys, timeout, completions);
        require(ranges.size() == keys.size(), "one list of ranges a key");
        add_gets(*operation, [&](std::size_t i) {
            return Wanted{selection(ranges[i]), wire::kAnySize, wire::kAnySize};
        });
        return submit(operation, nb::none(), [](Operation& done) -> nb::object {
            nb::list results;
            for (const Item& item : done.items) {
                if (item.status == wire::Status::missing) {
                    results.append(nb::none());
                } else {
                    results.append(nb::make_tuple(to_numpy(item.owned), item.value_size));
                }
            }
            return results;
        });
    }

    nb::object get_into(const std::vector<std::string>& keys, const std::vector<Ranges>& ranges,
                        const std::vector<ArrayTuple>& outs, nb::list owners, double timeout,
                        PyCompletions* completions) {
        auto operation = make(keys, timeout, completions);
        require(ranges.size() == keys.size() && outs.size() == keys.size(),
                "one list of ranges and one out a key");
        for (std::size_t i = 0; i < keys.size(); ++i) {
            operation->items[i].memory = to_memory(outs[i]);
        }
        add_gets(*operation, [&](std::size_t i) {
            return Wanted{selection(ranges[i]), operation->items[i].memory->layout.size(),
                          wire::kAnySize};
        });
        return submit(operation, owners, [](Operation& done) -> nb::object {
            nb::list results;
            for (const Item& item : done.items) {
                if (item.status == wire::Status::missing) {
                    results.append(nb::none());
                } else {
                    results.append(item.size);
                }
            }
            return results;
        });
    }

    nb::object read_boxes(const std::vector<std::string>& keys, const nb::list& boxes,
                          const ArrayTuple& out, const std::vector<std::int64_t>& chunk_shape,
                          nb::object owner, double timeout, PyCompletions* completions) {
        auto operation = make(keys, timeout, completions);
        const Array target = to_array(out);
        const Array chunk = stored_chunk(chunk_shape, target.itemsize);
        const std::size_t ndim = chunk.dims.size();
        require(target.dims.size() == ndim, "out and chunk of different numbers of axes");
        const auto numbers = to_integers(boxes, keys.size() * 3 * ndim);
        const std::uint64_t chunk_size = Layout::strided(0, chunk.itemsize, chunk.dims).size();
        add_gets(*operation, [&](std::size_t i) {
            const std::int64_t* box = numbers.data() + i * 3 * ndim;
            Item& item = operation->items[i];
            item.memory = Memory{target.base, part(target, box + ndim, box + 2 * ndim)};
            item.exact = true;
            return Wanted{part(chunk, box, box + 2 * ndim), item.memory->layout.size(),
                          chunk_size};
        });
        return submit(operation, owner, [](Operation& done) -> nb::object {
            nb::list missing;
            for (std::size_t i = 0; i < done.items.size(); ++i) {
                if (done.items[i].status == wire::Status::missing) {
                    missing.append(i);
                }
            }
            return missing;
        });
    }

    nb::object set(const std::vector<std::string>& keys, const std::vector<ArrayTuple>& values,
                   nb::list owners, bool if_absent, double timeout, PyCompletions* completions) {
        auto operation = make(keys, timeout, completions);
        require(values.size() == keys.size(), "one value a key");
        for (std::size_t i = 0; i < keys.size(); ++i) {
            operation->items[i].memory = to_memory(values[i]);
        }
        operation->kind = if_absent ? Operation::Kind::set_if_absent : Operation::Kind::set;
        return submit(operation, owners, [](Operation& done) -> nb::object {
            nb::list written;
            for (const Item& item : done.items) {
                written.append(item.status != wire::Status::kept);
            }
            return written;
        });
    }

    nb::object write_boxes(const std::vector<std::string>& keys, const nb::list& starts,
                           const ArrayTuple& value, const std::vector<std::int64_t>& chunk_shape,
                           nb::object owner, double timeout, PyCompletions* completions) {
        auto operation = make(keys, timeout, completions);
        const Array source = to_array(value);
        const std::size_t ndim = chunk_shape.size();
        require(source.dims.size() == ndim, "value and chunk of different numbers of axes");
        const auto numbers = to_integers(starts, keys.size() * ndim);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            operation->items[i].memory = Memory{
                source.base, part(source, numbers.data() + i * ndim, chunk_shape.data())};
        }
        operation->kind = Operation::Kind::set;
        return submit(operation, owner, nothing);
    }

    nb::object remove(const std::vector<std::string>& keys, double timeout,
                      PyCompletions* completions) {
        auto operation = make_calls(wire::Op::remove, keys, timeout, completions);
        return submit(operation, nb::none(), nothing);
    }

    nb::object stat(const std::vector<std::string>& keys, double timeout,
                    PyCompletions* completions) {
        auto operation = make_calls(wire::Op::stat, keys, timeout, completions);
        return submit(operation, nb::none(), [](Operation& done) -> nb::object {
            nb::list sizes;
            for (const Item& item : done.items) {
                wire::Reader reader(reply_bytes(item));
                while (!reader.done()) {
                    sizes.append(static_cast<std::int64_t>(reader.u64()));
                }
            }
            return sizes;
        });
    }

    nb::object remove_prefix(const std::string& prefix, double timeout,
                             PyCompletions* completions) {
        std::string body;
        wire::put_string(body, prefix);
        auto operation = make_call(wire::Op::remove_prefix, prefix, body, timeout, completions);
        return submit(operation, nb::none(), [](Operation& done) -> nb::object {
            return nb::int_(wire::Reader(reply_bytes(done.items[0])).u64());
        });
    }

    nb::object measure(const std::string& prefix, bool any, double timeout,
                       PyCompletions* completions) {
        std::string body;
        wire::put_string(body, prefix);
        wire::put_u8(body, any ? 1 : 0);
        auto operation = make_call(wire::Op::measure, prefix, body, timeout, completions);
        return submit(operation, nb::none(), [](Operation& done) -> nb::object {
            wire::Reader reader(reply_bytes(done.items[0]));
            const std::uint64_t keys = reader.u64();
            return nb::make_tuple(keys, reader.u64());
        });
    }

    nb::object list_page(const std::string& prefix, bool delimited, const std::string& cursor,
                         double timeout, PyCompletions* completions) {
        std::string body;
        wire::put_string(body, prefix);
        wire::put_u8(body, delimited ? 1 : 0);
        wire::put_string(body, cursor);
        auto operation = make_call(wire::Op::list, prefix, body, timeout, completions);
        return submit(operation, nb::none(), [](Operation& done) -> nb::object {
            wire::Reader reader(reply_bytes(done.items[0]));
            const std::string next = reader.string();
            nb::list names;
            while (!reader.done()) {
                names.append(nb::cast(reader.string()));
            }
            return nb::make_tuple(names, next);
        });
    }

    nb::object ping(double timeout, PyCompletions* completions) {
        auto operation = make_call(wire::Op::ping, "", "", timeout, completions);
        return submit(operation, nb::none(), nothing);
    }

    // In a forked child: not even the memory of the parent's UCX objects may be given back.
    void leak() {
        new std::shared_ptr<Client>(std::move(client_));
        new std::shared_ptr<Connection>(std::move(connection_));
    }

  private:
    struct Wanted {
        wire::Selection selection;
        std::uint64_t limit;
        std::uint64_t expected;
    };

    static nb::object nothing(Operation&) { return nb::none(); }

    static void require(bool condition, const char* what) {
        if (!condition) {
            throw Error(ErrorKind::argument, what);
        }
    }

    static wire::Selection selection(const Ranges& ranges) {
        std::vector<wire::Range> wanted;
        for (const auto& [kind, a, b] : ranges) {
            require(kind >= 1 && kind <= 3, "an unknown kind of byte range");
            wanted.push_back({static_cast<wire::Range::Kind>(kind), a, b});
        }
        return wanted;
    }

    static std::shared_ptr<Operation> make(const std::vector<std::string>& keys, double timeout,
                                           PyCompletions* completions) {
        std::vector<Item> items(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (const auto fault = wire::key_fault(keys[i])) {
                throw Error(ErrorKind::invalid_key, "the key '" + keys[i] + "' " + *fault);
            }
            items[i].key = keys[i];
        }
        return std::make_shared<Operation>(std::move(items), timeout,
                                           completions ? completions->queue : nullptr);
    }

    // One request message a kRequestBodyBytes of items.
    template <typename Describe>
    static void add_gets(Operation& operation, Describe describe) {
        operation.kind = Operation::Kind::get;
        for (std::size_t i = 0; i < operation.items.size(); ++i) {
            if (operation.requests.empty() ||
                operation.requests.back().body.size() >= wire::kRequestBodyBytes) {
                operation.requests.push_back(
                    {{{}, 0, wire::Op::get, static_cast<std::uint32_t>(i), 0, 0}, {}});
            }
            const Wanted wanted = describe(i);
            Outgoing& message = operation.requests.back();
            wire::put_get_item(message.body, operation.items[i].key, wanted.selection,
                               wanted.limit, wanted.expected);
            require(message.body.size() <= wire::kMaxRequestBytes, "too many ranges of one key");
            ++message.header.count;
        }
    }

    // An operation that is answered a message, not a key.
    static std::shared_ptr<Operation> make_calls(wire::Op op, const std::vector<std::string>& keys,
                                                 double timeout, PyCompletions* completions) {
        std::vector<Item> items;
        std::vector<Outgoing> requests;
        for (const std::string& key : keys) {
            if (const auto fault = wire::key_fault(key)) {
                throw Error(ErrorKind::invalid_key, "the key '" + key + "' " + *fault);
            }
            if (requests.empty() || requests.back().body.size() >= wire::kRequestBodyBytes) {
                requests.push_back(
                    {{{}, 0, op, static_cast<std::uint32_t>(items.size()), 0, 0}, {}});
                items.emplace_back();
                items.back().key = key;
            }
            wire::put_string(requests.back().body, key);
            ++requests.back().header.count;
        }
        auto operation = std::make_shared<Operation>(std::move(items), timeout,
                                                     completions ? completions->queue : nullptr);
        operation->requests = std::move(requests);
        return operation;
    }

    static std::shared_ptr<Operation> make_call(wire::Op op, const std::string& key,
                                                const std::string& body, double timeout,
                                                PyCompletions* completions) {
        require(key.size() <= wire::kMaxKeyBytes && body.size() <= wire::kMaxRequestBytes,
                "a prefix longer than any key");
        std::vector<Item> items(1);
        items[0].key = key;
        auto operation = std::make_shared<Operation>(std::move(items), timeout,
                                                     completions ? completions->queue : nullptr);
        operation->requests.push_back({{{}, 0, op, 0, 1, 0}, body});
        return operation;
    }

    nb::object submit(const std::shared_ptr<Operation>& operation, nb::object owners,
                      Convert convert) {
        const nb::object object = nb::cast(new PyOperation(client_, connection_, operation,
                                                           std::move(owners), std::move(convert)),
                                           nb::rv_policy::take_ownership);
        registry().emplace(operation->id, object);
        client_->submit(connection_, operation);
        return object;
    }

    std::shared_ptr<Client> client_;
    std::shared_ptr<Connection> connection_;
    const int pid_;
};

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

    nb::bytes address() const { return to_bytes(client_->address()); }

    nb::object attach(int fd, const nb::bytes& token, const nb::bytes& address,
                      const std::string& peer, double timeout) {
        Fd owned(fd);
        const wire::Token session = to_token(token);
        const std::string remote = to_string(address);
        std::shared_ptr<Connection> connection;
        {
            const nb::gil_scoped_release released;
            connection = client_->attach(std::move(owned), session, remote, peer);
        }
        auto* raw = new PyConnection(client_, connection);
        nb::object object = nb::cast(raw, nb::rv_policy::take_ownership);
        // One round trip: both sides have each other's endpoint, and the lanes are chosen.
        nb::cast<PyOperation&>(raw->ping(timeout, nullptr)).wait();
        return object;
    }

    void close(double timeout) {
        const nb::gil_scoped_release released;
        client_->close(milliseconds(timeout));
    }

    void abandon() {
        if (client_ != nullptr) {
            close_inherited_controls();
            new std::shared_ptr<Client>(std::move(client_));  // leaked, on purpose
        }
    }

  private:
    std::shared_ptr<Client> client_;
    const int pid_;
};

class PyServer {
  public:
    PyServer(std::shared_ptr<Backing> backing, int threads, const Options& options, bool polling,
             bool read_only)
        : server_(std::move(backing), threads, options, polling, read_only) {}

    nb::bytes address(int thread) { return to_bytes(server_.thread(thread).address()); }

    void attach(int fd, const nb::bytes& token, const nb::bytes& address, int thread,
                const std::string& peer) {
        Fd owned(fd);
        const wire::Token session = to_token(token);
        const std::string remote = to_string(address);
        const nb::gil_scoped_release released;
        server_.thread(thread).attach(std::move(owned), session, remote, peer);
    }

    std::map<std::string, std::uint64_t> stats() const {
        const Counters& counters = server_.counters();
        return {{"gets", counters.gets},
                {"sets", counters.sets},
                {"bytes_sent", counters.bytes_sent},
                {"bytes_received", counters.bytes_received},
                {"sessions", counters.sessions},
                {"sessions_lost", counters.sessions_lost},
                {"messages_refused", counters.messages_refused}};
    }

    std::uint64_t sessions() { return server_.sessions(); }

    bool drain(double timeout) {
        const nb::gil_scoped_release released;
        return server_.drain(milliseconds(timeout));
    }

    void close(double timeout) {
        const nb::gil_scoped_release released;
        server_.close(milliseconds(timeout));
    }

  private:
    Server server_;
};

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The native core of ucxstore: UCX, without the GIL.";
    nb::register_exception_translator(translate);
    module.attr("PROTOCOL_VERSION") = wire::kProtocolVersion;
    module.attr("MAX_KEY_BYTES") = wire::kMaxKeyBytes;
    module.def(
        "allocate", [](std::uint64_t size) { return to_numpy(allocate_region(size)); }, "size"_a,
        "Memory of `size` bytes, not initialised, that is recycled after use.");
    module.def("ucx_version", [] { return std::string(ucp_get_version_string()); });

    nb::class_<PyOperation>(module, "Operation")
        .def_prop_ro("done", &PyOperation::done)
        .def("wait", &PyOperation::wait)
        .def("result", &PyOperation::result)
        .def("cancel", &PyOperation::cancel);

    nb::class_<PyCompletions>(module, "Completions")
        .def(nb::init<>())
        .def("fileno", [](const PyCompletions& self) { return self.queue->fd(); })
        .def("drain", &PyCompletions::drain);

    const auto completions = "completions"_a.none() = nb::none();
    nb::class_<PyConnection>(module, "Connection")
        .def_prop_ro("alive", &PyConnection::alive)
        .def_prop_ro("peer", &PyConnection::peer)
        .def_prop_ro("lanes", &PyConnection::lanes)
        .def("close", &PyConnection::close)
        .def("get", &PyConnection::get, "keys"_a, "ranges"_a, "timeout"_a, completions)
        .def("get_into", &PyConnection::get_into, "keys"_a, "ranges"_a, "outs"_a, "owners"_a,
             "timeout"_a, completions)
        .def("read_boxes", &PyConnection::read_boxes, "keys"_a, "boxes"_a, "out"_a,
             "chunk_shape"_a, "owner"_a, "timeout"_a, completions)
        .def("set", &PyConnection::set, "keys"_a, "values"_a, "owners"_a, "if_absent"_a,
             "timeout"_a, completions)
        .def("write_boxes", &PyConnection::write_boxes, "keys"_a, "starts"_a, "value"_a,
             "chunk_shape"_a, "owner"_a, "timeout"_a, completions)
        .def("delete", &PyConnection::remove, "keys"_a, "timeout"_a, completions)
        .def("delete_prefix", &PyConnection::remove_prefix, "prefix"_a, "timeout"_a, completions)
        .def("stat", &PyConnection::stat, "keys"_a, "timeout"_a, completions)
        .def("measure", &PyConnection::measure, "prefix"_a, "any"_a, "timeout"_a, completions)
        .def("list_page", &PyConnection::list_page, "prefix"_a, "delimited"_a, "cursor"_a,
             "timeout"_a, completions)
        .def("ping", &PyConnection::ping, "timeout"_a, completions);

    nb::class_<PyClient>(module, "Client")
        .def(nb::init<const Options&, bool>(), "options"_a, "polling"_a)
        .def_prop_ro("address", &PyClient::address)
        .def("attach", &PyClient::attach, "fd"_a, "token"_a, "address"_a, "peer"_a, "timeout"_a)
        .def("close", &PyClient::close, "timeout"_a)
        .def("abandon", &PyClient::abandon);

    nb::class_<Backing>(module, "Backing");
    nb::class_<MemoryBacking, Backing>(module, "MemoryBacking").def(nb::init<>());
    nb::class_<DirectoryBacking, Backing>(module, "DirectoryBacking")
        .def(nb::init<const std::string&>(), "root"_a);

    nb::class_<PyServer>(module, "Server")
        .def(nb::init<std::shared_ptr<Backing>, int, const Options&, bool, bool>(), "backing"_a,
             "threads"_a, "options"_a, "polling"_a, "read_only"_a)
        .def("address", &PyServer::address, "thread"_a)
        .def("attach", &PyServer::attach, "fd"_a, "token"_a, "address"_a, "thread"_a, "peer"_a)
        .def("stats", &PyServer::stats)
        .def_prop_ro("sessions", &PyServer::sessions)
        .def("drain", &PyServer::drain, "timeout"_a)
        .def("close", &PyServer::close, "timeout"_a);
}

}  // namespace ucxstore

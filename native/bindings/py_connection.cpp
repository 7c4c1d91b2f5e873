#include "bindings/py_connection.hpp"

#include <unistd.h>

#include <limits>
#include <utility>

#include "bindings/gil.hpp"
#include "bindings/py_result.hpp"
#include "client/batch.hpp"

using namespace nb::literals;

namespace ucxstore::py {

PyConnection::PyConnection(std::shared_ptr<Link> link) : link_(std::move(link)), pid_(getpid()) {}

PyConnection::~PyConnection() {
    if (getpid() == pid_) {
        if (!link_->leaving()) {  // else it closes itself, once it has no more to do
            close();
        }
    } else {
        // In a forked child not even the memory of the parent's UCX objects may be given back.
        new std::shared_ptr<Link>(std::move(link_));
    }
}

std::vector<std::string> PyConnection::lanes() {
    const WithoutGil released;
    return link_->lanes();
}

PyOperation::Object PyConnection::start(std::shared_ptr<Operation> operation, nb::object owners,
                                        Convert convert) {
    return PyOperation::start(link_, std::move(operation), std::move(owners), std::move(convert));
}

std::optional<std::uint64_t> PyConnection::see(const std::string& key, const nb::object& out) {
    Py_buffer memory;
    if (PyObject_GetBuffer(out.ptr(), &memory, PyBUF_WRITABLE) != 0) {
        PyErr_Clear();
        return std::nullopt;
    }
    const auto see = [&] {
        return link_->see(key, static_cast<std::byte*>(memory.buf),
                          static_cast<std::uint64_t>(memory.len));
    };
    std::optional<std::uint64_t> size;
    if (static_cast<std::uint64_t>(memory.len) >= kCopiedWithGil) {
        const WithoutGil released;
        size = see();
    } else {
        size = see();
    }
    PyBuffer_Release(&memory);
    return size;
}

std::optional<ReadOnlyBytes> PyConnection::hold(const std::string& key) {
    const auto value = link_->hold(key);
    return value == nullptr ? std::nullopt : std::optional(to_read_only(value));
}

std::optional<ReadOnlyBytes> PyConnection::map_file(const std::string& key, bool waits) {
    using Wait = DirectoryRoot::Wait;
    std::shared_ptr<Region> value;
    {
        const WithoutGil released;
        value = link_->map_file(key, waits ? Wait::for_disk : Wait::never);
    }
    return value == nullptr ? std::nullopt : std::optional(to_read_only(value));
}

std::shared_ptr<Allocation> PyConnection::allocate(const std::string& key, std::uint64_t size) {
    if (!link_->takes_files(size)) {
        return nullptr;
    }
    const WithoutGil released;
    try {
        return std::make_shared<Allocation>(key, size);
    } catch (const Error&) {
        return nullptr;
    }
}

namespace {

using Keys = std::vector<std::string>;
using Owners = nb::typed<nb::list, nb::any>;
using Integers = nb::typed<nb::list, int>;
using Versions = std::vector<std::uint64_t>;

// What every request is given besides its own arguments: the seconds that it may go without
// progress, and the queue that it completes into (nullptr: a thread waits for it).
struct How {
    double timeout;
    QueuePointer queue;
};

How to_how(double timeout, PyCompletions* completions) {
    return {timeout, completions == nullptr ? nullptr : completions->queue};
}

// An operation with an item for each key.
std::shared_ptr<Operation> on_keys(Operation::Kind kind, const Keys& keys, const How& how) {
    return make_operation(keys, kind, how.timeout, how.queue);
}

// The body of a request of one item, with its fields in the order of docs/wire.md.
class Body {
  public:
    Body& text(const std::string& text) { return wire::put_string(bytes_, text), *this; }
    Body& number(std::uint64_t number) { return wire::put_u64(bytes_, number), *this; }
    Body& flag(bool flag) { return wire::put_u8(bytes_, flag ? 1 : 0), *this; }
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

PyOperation::Object call(PyConnection& self, const How& how, wire::Op op, const std::string& key,
                         Body body, Convert convert) {
    return self.start(make_call(op, key, body.take(), how.timeout, how.queue), nb::none(),
                      std::move(convert));
}

nb::object nothing(Operation&) { return nb::none(); }

wire::Reader reply_of(const Item& item) {
    return wire::Reader({item.owned->data(), item.owned->size()});
}

// What is lent of a server's memory.
struct PyLoan {
    std::shared_ptr<Region> region;
};

// A list of what `convert` makes of each item, and None for a missing key.
template <typename ConvertItem>
nb::object each_item(Operation& done, ConvertItem convert) {
    nb::list results;
    for (const Item& item : done.items) {
        if (item.status == wire::Status::missing) {
            results.append(nb::none());
        } else {
            results.append(convert(item));
        }
    }
    return results;
}

PyOperation::Object get(PyConnection& self, const How& how, const Keys& keys,
                        const std::vector<Ranges>& ranges, const std::optional<Versions>& versions,
                        bool borrow) {
    require(ranges.size() == keys.size(), "one list of ranges a key");
    require(!versions || versions->size() == keys.size(), "one version a key");
    auto operation = on_keys(Operation::Kind::get, keys, how);
    operation->borrows = borrow;
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        wanted[i].selection = to_selection(ranges[i]);
        operation->items[i].version = versions ? (*versions)[i] : wire::kAnyVersion;
    }
    want(*operation, std::move(wanted));
    return self.start(operation, nb::none(), [borrow](Operation& done) {
        return each_item(done, [borrow](const Item& item) {
            const bool changed = item.status == wire::Status::changed;
            const nb::object data = changed ? nb::none() : to_readable(item.owned);
            if (!borrow) {
                return nb::make_tuple(data, item.value_size, item.version);
            }
            const bool is_lent = !changed && item.owned->read_only();
            const nb::object loan = is_lent ? nb::cast(PyLoan{item.owned}) : nb::none();
            return nb::make_tuple(data, item.value_size, item.version, loan);
        });
    });
}

PyOperation::Object get_into(PyConnection& self, const How& how, const Keys& keys,
                             const std::vector<Ranges>& ranges, const std::vector<ArrayTuple>& outs,
                             const Owners& owners) {
    require(ranges.size() == keys.size() && outs.size() == keys.size(),
            "one list of ranges and one out a key");
    auto operation = on_keys(Operation::Kind::get, keys, how);
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(outs[i]);
        wanted[i].selection = to_selection(ranges[i]);
    }
    want(*operation, std::move(wanted));
    return self.start(operation, owners, [](Operation& done) {
        return each_item(done, [](const Item& item) { return item.size; });
    });
}

PyOperation::Object read_boxes(PyConnection& self, const How& how, const Keys& keys,
                               const Integers& boxes, const ArrayTuple& out,
                               const std::vector<std::int64_t>& chunk_shape,
                               const nb::object& owner, const PyResultMemory* result) {
    const Array target = to_array(out);
    const Array chunk = stored_chunk(chunk_shape, target.itemsize);
    const std::size_t ndim = chunk.dims.size();
    require(target.dims.size() == ndim, "out and chunk of different numbers of axes");
    const auto numbers = to_integers(boxes, keys.size() * 3 * ndim);
    auto operation = on_keys(Operation::Kind::get, keys, how);
    operation->result = result == nullptr ? nullptr : result->memory;
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::int64_t* chunk_start = numbers.data() + i * 3 * ndim;
        const std::int64_t* out_start = chunk_start + ndim;
        const std::int64_t* count = out_start + ndim;
        Item& item = operation->items[i];
        item.memory = Memory{target.base, part(target, out_start, count)};
        item.exact = true;
        wanted[i].selection = part(chunk, chunk_start, count);
        wanted[i].expected = chunk.nbytes();
    }
    want(*operation, std::move(wanted));
    return self.start(operation, owner, [](Operation& done) -> nb::object {
        nb::list missing;
        for (std::size_t i = 0; i < done.items.size(); ++i) {
            if (done.items[i].status == wire::Status::missing) {
                missing.append(i);
            }
        }
        return missing;
    });
}

PyOperation::Object read_parts(PyConnection& self, const How& how, const Keys& keys,
                               const std::vector<PartTuple>& sources,
                               const std::vector<PartTuple>& targets, std::uint64_t address,
                               const std::vector<std::int64_t>& expected, const Versions& versions,
                               const nb::object& owner) {
    require(sources.size() == keys.size() && targets.size() == keys.size() &&
                expected.size() == keys.size() && versions.size() == keys.size(),
            "one source, target, size and version a key");
    auto operation = on_keys(Operation::Kind::get, keys, how);
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        Item& item = operation->items[i];
        try {
            Layout source = to_source(sources[i]);
            Layout target = to_target(targets[i]);
            require(source.size() == target.size(), "a source and a target of different sizes");
            wanted[i].selection = std::move(source);
            item.memory.emplace(reinterpret_cast<std::byte*>(address), std::move(target));
        } catch (const Error& error) {
            throw Error(error.kind(), "'" + keys[i] + "': " + error.what());
        }
        item.exact = true;
        item.version = versions[i];
        wanted[i].expected = static_cast<std::uint64_t>(expected[i]);  // -1: any
    }
    want(*operation, std::move(wanted));
    return self.start(operation, owner, [](Operation& done) -> nb::object {
        nb::list outcomes;
        for (const Item& item : done.items) {
            outcomes.append(item.status == wire::Status::missing   ? 1
                            : item.status == wire::Status::changed ? 2
                                                                   : 0);
        }
        return outcomes;
    });
}

template <Operation::Kind kind>
PyOperation::Object set(PyConnection& self, const How& how, const Keys& keys,
                        const std::vector<ArrayTuple>& values, const Owners& owners) {
    require(values.size() == keys.size(), "one value a key");
    auto operation = on_keys(kind, keys, how);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(values[i]);
    }
    return self.start(operation, owners, [](Operation& done) {
        return each_item(done, [](const Item& item) { return item.status != wire::Status::kept; });
    });
}

// As set(), of one value, which may go as a file.
template <Operation::Kind kind>
PyOperation::Object set_file(PyConnection& self, const How& how, const Keys& keys,
                             const std::vector<ArrayTuple>& values, const Owners& owners,
                             const PyAllocation& file) {
    require(keys.size() == 1 && values.size() == 1 && keys[0] == file.key(),
            "an allocation is for one value, under the key that it was made for");
    auto operation = on_keys(kind, keys, how);
    operation->items[0].memory = to_memory(values[0]);
    require(operation->items[0].memory->size() == file.size(),
            "a value that is not of its allocation's size");
    operation->file = self.file_of(file);
    return self.start(operation, owners, [](Operation& done) {
        return each_item(done, [](const Item& item) { return item.status != wire::Status::kept; });
    });
}

PyOperation::Object set_parts(PyConnection& self, const How& how, const Keys& keys,
                              const std::vector<std::vector<ArrayTuple>>& values,
                              const Owners& owners) {
    require(values.size() == keys.size(), "one value a key");
    auto operation = on_keys(Operation::Kind::set, keys, how);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(values[i]);
    }
    return self.start(operation, owners, nothing);
}

PyOperation::Object write_boxes(PyConnection& self, const How& how, const Keys& keys,
                                const Integers& starts, const ArrayTuple& value,
                                const std::vector<std::int64_t>& chunk_shape,
                                const nb::object& owner) {
    const Array source = to_array(value);
    const std::size_t ndim = chunk_shape.size();
    require(source.dims.size() == ndim, "value and chunk of different numbers of axes");
    const auto numbers = to_integers(starts, keys.size() * ndim);
    auto operation = on_keys(Operation::Kind::set, keys, how);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory =
            Memory{source.base, part(source, numbers.data() + i * ndim, chunk_shape.data())};
    }
    return self.start(operation, owner, nothing);
}

PyOperation::Object remove(PyConnection& self, const How& how, const Keys& keys) {
    return self.start(make_calls(wire::Op::remove, keys, how.timeout, how.queue), nb::none(),
                      nothing);
}

PyOperation::Object stat(PyConnection& self, const How& how, const Keys& keys) {
    return self.start(make_calls(wire::Op::stat, keys, how.timeout, how.queue), nb::none(),
                      [](Operation& done) -> nb::object {
                          nb::list sizes;
                          for (const Item& item : done.items) {
                              wire::Reader reader = reply_of(item);
                              while (!reader.done()) {
                                  sizes.append(static_cast<std::int64_t>(reader.u64()));
                              }
                          }
                          return sizes;
                      });
}

PyOperation::Object remove_prefix(PyConnection& self, const How& how, const std::string& prefix) {
    return call(
        self, how, wire::Op::remove_prefix, prefix, Body().text(prefix),
        [](Operation& done) -> nb::object { return nb::int_(reply_of(done.items[0]).u64()); });
}

// The texts from here on: `most` of them, or to the end.
nb::list texts_of(wire::Reader& reader, std::uint64_t most = ~0ull) {
    nb::list texts;
    while (!reader.done() && texts.size() < most) {
        texts.append(nb::cast(reader.string()));
    }
    return texts;
}

PyOperation::Object measure(PyConnection& self, const How& how, const std::string& prefix,
                            bool any) {
    return call(self, how, wire::Op::measure, prefix, Body().text(prefix).flag(any),
                [](Operation& done) -> nb::object {
                    wire::Reader reader = reply_of(done.items[0]);
                    const std::uint64_t keys = reader.u64();
                    const std::uint64_t bytes = reader.u64();
                    return nb::make_tuple(keys, bytes, texts_of(reader));
                });
}

PyOperation::Object list_page(PyConnection& self, const How& how, const std::string& prefix,
                              bool delimited, const std::string& cursor) {
    return call(self, how, wire::Op::list, prefix, Body().text(prefix).flag(delimited).text(cursor),
                [](Operation& done) -> nb::object {
                    wire::Reader reader = reply_of(done.items[0]);
                    const std::string next = reader.string();
                    const nb::list unreadable = texts_of(reader, reader.u64());
                    return nb::make_tuple(texts_of(reader), next, unreadable);
                });
}

PyOperation::Object stats(PyConnection& self, const How& how) {
    return call(self, how, wire::Op::stats, "", Body(), [](Operation& done) -> nb::object {
        const Item& item = done.items[0];
        return nb::bytes(item.owned->data(), item.owned->size());
    });
}

PyOperation::Object operate(PyConnection& self, const How& how, const std::string& request) {
    require(request.size() <= std::numeric_limits<std::uint16_t>::max(), "a request too long");
    return call(self, how, wire::Op::operate, "", Body().text(request),
                [](Operation& done) -> nb::object {
                    const Item& item = done.items[0];
                    return nb::bytes(item.owned->data(), item.owned->size());
                });
}

PyOperation::Object begin_space(PyConnection& self, const How& how, const std::string& name,
                                std::uint64_t quota, std::uint64_t timeout_ms) {
    return call(self, how, wire::Op::begin_space, name,
                Body().text(name).number(quota).number(timeout_ms), nothing);
}

PyOperation::Object renew_space(PyConnection& self, const How& how, const std::string& name) {
    return call(self, how, wire::Op::renew_space, name, Body().text(name), nothing);
}

PyOperation::Object end_space(PyConnection& self, const How& how, const std::string& name) {
    return call(self, how, wire::Op::end_space, name, Body().text(name), nothing);
}

PyOperation::Object ping(PyConnection& self, const How& how) {
    return call(self, how, wire::Op::ping, "", Body(), nothing);
}

// Binds requests as methods. Each takes the arguments of its function, `timeout` and `completions`.
class Requests {
  public:
    explicit Requests(nb::class_<PyConnection>& type) : type_(type) {}

    template <typename... Args, typename... Names>
    Requests& def(const char* name,
                  PyOperation::Object (*request)(PyConnection&, const How&, Args...),
                  const Names&... names) {
        type_.def(
            name,
            [request](PyConnection& self, Args... args, double timeout,
                      PyCompletions* completions) {
                return request(self, to_how(timeout, completions), args...);
            },
            names..., "timeout"_a, "completions"_a.none() = nb::none());
        return *this;
    }

  private:
    nb::class_<PyConnection>& type_;
};

}  // namespace

void PyConnection::ping(double timeout) {
    nb::cast<PyOperation&>(py::ping(*this, {timeout, nullptr})).wait();
}

void bind_connection(nb::module_& module) {
    nb::class_<PyLoan>(module, "Loan", "Memory of a server that a value is lent in.")
        .def_prop_ro(
            "lost", [](const PyLoan& self) { return self.region->lost(); },
            "Whether the server has taken it back, so that other bytes may be there.");
    nb::class_<PyConnection> type(module, "Connection");
    type.def_prop_ro("alive", &PyConnection::alive)
        .def_prop_ro("leaving", &PyConnection::leaving)
        .def_prop_ro("peer", &PyConnection::peer)
        .def_prop_ro("lanes", &PyConnection::lanes)
        .def_prop_ro("checked", &PyConnection::checked)
        .def_prop_ro("encrypted", &PyConnection::encrypted)
        .def("close", &PyConnection::close)
        .def("see", &PyConnection::see, "key"_a, "out"_a)
        .def("hold", &PyConnection::hold, "key"_a)
        .def("map_file", &PyConnection::map_file, "key"_a, "waits"_a)
        .def(
            "allocate",
            [](PyConnection& self, const std::string& key,
               std::uint64_t size) -> nb::typed<nb::object, std::optional<PyAllocation>> {
                auto memory = self.allocate(key, size);
                if (memory == nullptr) {
                    return nb::none();
                }
                return nb::cast(new PyAllocation(std::move(memory)), nb::rv_policy::take_ownership);
            },
            "key"_a, "size"_a)
        .def(
            "get",
            [](PyConnection& self, const Keys& keys, const std::vector<Ranges>& ranges,
               double timeout, PyCompletions* completions, const std::optional<Versions>& versions,
               bool borrow) {
                return get(self, to_how(timeout, completions), keys, ranges, versions, borrow);
            },
            "keys"_a, "ranges"_a, "timeout"_a, "completions"_a.none() = nb::none(),
            "versions"_a.none() = nb::none(), "borrow"_a = false);
    Requests(type)
        .def("get_into", get_into, "keys"_a, "ranges"_a, "outs"_a, "owners"_a)
        .def("read_boxes", read_boxes, "keys"_a, "boxes"_a, "out"_a, "chunk_shape"_a, "owner"_a,
             "result"_a.none())
        .def("read_parts", read_parts, "keys"_a, "sources"_a, "targets"_a, "address"_a,
             "expected"_a, "versions"_a, "owner"_a)
        .def("set", set<Operation::Kind::set>, "keys"_a, "values"_a, "owners"_a)
        .def("add", set<Operation::Kind::set_if_absent>, "keys"_a, "values"_a, "owners"_a)
        .def("set_file", set_file<Operation::Kind::set>, "keys"_a, "values"_a, "owners"_a, "file"_a)
        .def("add_file", set_file<Operation::Kind::set_if_absent>, "keys"_a, "values"_a, "owners"_a,
             "file"_a)
        .def("set_parts", set_parts, "keys"_a, "values"_a, "owners"_a)
        .def("write_boxes", write_boxes, "keys"_a, "starts"_a, "value"_a, "chunk_shape"_a,
             "owner"_a)
        .def("delete", remove, "keys"_a)
        .def("delete_prefix", remove_prefix, "prefix"_a)
        .def("stat", stat, "keys"_a)
        .def("measure", measure, "prefix"_a, "any"_a)
        .def("list_page", list_page, "prefix"_a, "delimited"_a, "cursor"_a)
        .def("stats", stats)
        .def("operate", operate, "request"_a)
        .def("begin_space", begin_space, "name"_a, "quota"_a, "timeout_ms"_a)
        .def("renew_space", renew_space, "name"_a)
        .def("end_space", end_space, "name"_a)
        .def("ping", py::ping);
}

}  // namespace ucxstore::py

#include "bindings/py_connection.hpp"

#include <utility>

#include "bindings/gil.hpp"
#include "bindings/py_buffer.hpp"
#include "bindings/py_result.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {

std::vector<std::string> PyConnection::lanes() {
    const WithoutGil released;
    return link_->lanes();
}

PyOperation::Object PyConnection::start(std::shared_ptr<client::Operation> operation,
                                        nb::object owners, Convert convert) {
    return PyOperation::start(link_.get(), std::move(operation), std::move(owners),
                              std::move(convert));
}

std::optional<std::uint64_t> PyConnection::see(const std::string& key, const nb::object& out) {
    const auto buffer = PyBuffer::of(out);
    if (buffer == nullptr) {
        return std::nullopt;
    }
    const auto see = [&] {
        return link_->see(key, [&](std::uint64_t size) {
            return size <= buffer->size() ? buffer->data() : nullptr;
        });
    };
    if (buffer->size() >= kCopiedWithGil) {
        const WithoutGil released;
        return see();
    }
    return see();
}

nb::typed<nb::object, std::optional<nb::bytearray>> PyConnection::see_value(
    const std::string& key) {
    nb::object value = nb::none();
    const auto size = link_->see(key, [&](std::uint64_t size) -> std::byte* {
        if (size >= kCopiedWithGil) {
            return nullptr;
        }
        PyObject* const made =
            PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
        if (made == nullptr) {  // a request tells of the want of memory
            PyErr_Clear();
            return nullptr;
        }
        value = nb::steal(made);
        return reinterpret_cast<std::byte*>(PyByteArray_AsString(made));
    });
    return size ? value : nb::none();
}

std::optional<ReadOnlyBytes> PyConnection::hold(const std::string& key) {
    const auto value = link_->hold(key);
    return value == nullptr ? std::nullopt : std::optional(to_read_only(value));
}

std::optional<ReadOnlyBytes> PyConnection::map_file(const std::string& key, bool waits) {
    using Wait = files::DirectoryRoot::Wait;
    std::shared_ptr<memory::Region> value;
    {
        const WithoutGil released;
        value = link_->map_file(key, waits ? Wait::for_disk : Wait::never);
    }
    return value == nullptr ? std::nullopt : std::optional(to_read_only(value));
}

nb::typed<nb::object, std::optional<PyAllocation>> PyConnection::allocate(const std::string& key,
                                                                          std::uint64_t size) {
    std::shared_ptr<local_client::Allocation> memory;
    if (link_->takes_files(size)) {  // or the GIL is kept, as to get it back may take a while
        const WithoutGil released;
        memory = local_client::Allocation::make(key, size);
    }
    if (memory == nullptr) {
        return nb::none();
    }
    return nb::cast(new PyAllocation(std::move(memory)), nb::rv_policy::take_ownership);
}

namespace {

namespace requests = client::requests;
using Kind = client::Operation::Kind;
using Owners = nb::typed<nb::list, nb::any>;
using Buffers = nb::typed<nb::list, PyBuffer>;
using Integers = nb::typed<nb::list, int>;
using Shape = std::vector<std::int64_t>;

requests::How to_how(double timeout, PyCompletions* completions) {
    return {timeout, completions == nullptr ? nullptr : completions->queue};
}

// The result of an operation, by what its replies say.
template <typename Answer>
Convert converter(Answer (*answer)(const client::Operation&)) {
    return [answer](client::Operation& done) { return nb::cast(answer(done)); };
}

nb::object nothing(const client::Operation&) { return nb::none(); }

nb::object text(const client::Operation& done) {
    const memory::Region& text = *done.items[0].owned;
    return nb::bytes(text.data(), text.size());
}

// What is lent of a server's memory.
struct PyLoan {
    std::shared_ptr<memory::Region> region;
};

// A list of what `convert` makes of each item, and None for a missing key.
template <typename ConvertItem>
nb::object each_item(const client::Operation& done, ConvertItem convert) {
    nb::list results;
    for (const client::Item& item : done.items) {
        if (item.status == protocol::Status::missing) {
            results.append(nb::none());
        } else {
            results.append(convert(item));
        }
    }
    return results;
}

PyOperation::Object get(PyConnection& self, const requests::How& how, const requests::Keys& keys,
                        const std::vector<Ranges>& ranges,
                        const std::optional<requests::Versions>& versions, bool borrow,
                        const std::string& recipe) {
    auto operation = requests::decoded(
        requests::get(how, keys, each(to_selection, ranges), versions, borrow), recipe);
    return self.start(std::move(operation), nb::none(), [borrow](client::Operation& done) {
        return each_item(done, [borrow](const client::Item& item) {
            const bool changed = item.status == protocol::Status::changed;
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

PyOperation::Object get_into(PyConnection& self, const requests::How& how,
                             const requests::Keys& keys, const std::vector<Ranges>& ranges,
                             const std::vector<ArrayTuple>& outs, const Owners& owners) {
    auto operation =
        requests::get_into(how, keys, each(to_selection, ranges), each(to_memory, outs));
    return self.start(std::move(operation), owners, [](client::Operation& done) {
        return each_item(done, [](const client::Item& item) { return item.size; });
    });
}

// Of whole values; `outs` are Buffers.
PyOperation::Object get_into_buffers(PyConnection& self, const requests::How& how,
                                     const requests::Keys& keys, const Buffers& outs) {
    std::vector<client::Memory> memory;
    memory.reserve(keys.size());
    for (const nb::handle out : outs) {
        memory.push_back(nb::cast<const PyBuffer&>(out).memory());
    }
    auto operation = requests::get_into(how, keys, std::vector<protocol::Selection>(keys.size()),
                                        std::move(memory));
    return self.start(std::move(operation), outs, [](client::Operation& done) {
        return each_item(done, [](const client::Item& item) { return item.size; });
    });
}

// NOLINTNEXTLINE(readability-function-size): as Python calls it
PyOperation::Object read_boxes(PyConnection& self, const requests::How& how,
                               const requests::Keys& keys, const Integers& boxes,
                               const ArrayTuple& out, const Shape& chunk_shape,
                               const nb::object& owner, const PyResultMemory* result,
                               const std::string& recipe) {
    auto operation = requests::read_boxes(how, keys, to_integers(boxes), to_array(out), chunk_shape,
                                          result ? result->memory : nullptr);
    return self.start(requests::decoded(std::move(operation), recipe), owner,
                      converter(requests::missing));
}

// NOLINTNEXTLINE(readability-function-size): as Python calls it
PyOperation::Object read_parts(PyConnection& self, const requests::How& how,
                               const requests::Keys& keys, const std::vector<PartTuple>& sources,
                               const std::vector<PartTuple>& targets, std::uint64_t address,
                               const std::vector<std::int64_t>& expected,
                               const requests::Versions& versions, const nb::object& owner,
                               const std::string& recipe) {
    auto operation =
        requests::read_parts(how, keys, each(to_part, sources), each(to_part, targets),
                             reinterpret_cast<std::byte*>(address), expected, versions);
    return self.start(requests::decoded(std::move(operation), recipe), owner,
                      converter(requests::outcomes));
}

template <Kind kind>
PyOperation::Object set(PyConnection& self, const requests::How& how, const requests::Keys& keys,
                        const std::vector<ArrayTuple>& values, const Owners& owners) {
    return self.start(requests::set(how, keys, each(to_memory, values), kind), owners,
                      converter(requests::written));
}

// As set(), of one value, which may go as a file.
template <Kind kind>
PyOperation::Object set_file(PyConnection& self, const requests::How& how,
                             const requests::Keys& keys, const std::vector<ArrayTuple>& values,
                             const Owners& owners, const PyAllocation& file) {
    const auto operation = requests::set(how, keys, each(to_memory, values), kind);
    file.send_by(self.link(), *operation);
    return self.start(operation, owners, converter(requests::written));
}

PyOperation::Object set_parts(PyConnection& self, const requests::How& how,
                              const requests::Keys& keys,
                              const std::vector<std::vector<ArrayTuple>>& values,
                              const Owners& owners) {
    return self.start(requests::set(how, keys, each(to_joined_memory, values)), owners,
                      converter(nothing));
}

PyOperation::Object write_boxes(PyConnection& self, const requests::How& how,
                                const requests::Keys& keys, const Integers& starts,
                                const ArrayTuple& value, const Shape& chunk_shape,
                                const nb::object& owner) {
    return self.start(
        requests::write_boxes(how, keys, to_integers(starts), to_array(value), chunk_shape), owner,
        converter(nothing));
}

// Binds requests as methods. Each takes the arguments of its function, `timeout` and `completions`.
class Requests {
  public:
    explicit Requests(nb::class_<PyConnection>& type) : type_(type) {}

    template <typename... Args, typename... Names>
    Requests& def(const char* name,
                  PyOperation::Object (*request)(PyConnection&, const requests::How&, Args...),
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

    // One without memory of the caller's.
    template <typename... Args, typename Answer, typename... Names>
    Requests& def(const char* name, requests::Pointer (*request)(const requests::How&, Args...),
                  Answer (*answer)(const client::Operation&), const Names&... names) {
        type_.def(
            name,
            [request, answer](PyConnection& self, Args... args, double timeout,
                              PyCompletions* completions) {
                return self.start(request(to_how(timeout, completions), args...), nb::none(),
                                  converter(answer));
            },
            names..., "timeout"_a, "completions"_a.none() = nb::none());
        return *this;
    }

  private:
    nb::class_<PyConnection>& type_;
};

}  // namespace

void PyConnection::ping(double timeout) {
    nb::cast<PyOperation&>(
        start(requests::ping({timeout, nullptr}), nb::none(), converter(nothing)))
        .wait();
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
        .def("see_value", &PyConnection::see_value, "key"_a)
        .def("hold", &PyConnection::hold, "key"_a)
        .def("map_file", &PyConnection::map_file, "key"_a, "waits"_a)
        .def("allocate", &PyConnection::allocate, "key"_a, "size"_a)
        .def(
            "get",
            [](PyConnection& self, const requests::Keys& keys, const std::vector<Ranges>& ranges,
               double timeout, PyCompletions* completions,
               const std::optional<requests::Versions>& versions, bool borrow,
               const std::string& recipe) {
                return get(self, to_how(timeout, completions), keys, ranges, versions, borrow,
                           recipe);
            },
            "keys"_a, "ranges"_a, "timeout"_a, "completions"_a.none() = nb::none(),
            "versions"_a.none() = nb::none(), "borrow"_a = false, "recipe"_a = "");
    Requests(type)
        .def("get_into", get_into, "keys"_a, "ranges"_a, "outs"_a, "owners"_a)
        .def("get_into_buffers", get_into_buffers, "keys"_a, "outs"_a)
        .def("read_boxes", read_boxes, "keys"_a, "boxes"_a, "out"_a, "chunk_shape"_a, "owner"_a,
             "result"_a.none(), "recipe"_a)
        .def("read_parts", read_parts, "keys"_a, "sources"_a, "targets"_a, "address"_a,
             "expected"_a, "versions"_a, "owner"_a, "recipe"_a)
        .def("set", set<Kind::set>, "keys"_a, "values"_a, "owners"_a)
        .def("add", set<Kind::set_if_absent>, "keys"_a, "values"_a, "owners"_a)
        .def("set_file", set_file<Kind::set>, "keys"_a, "values"_a, "owners"_a, "file"_a)
        .def("add_file", set_file<Kind::set_if_absent>, "keys"_a, "values"_a, "owners"_a, "file"_a)
        .def("set_parts", set_parts, "keys"_a, "values"_a, "owners"_a)
        .def("write_boxes", write_boxes, "keys"_a, "starts"_a, "value"_a, "chunk_shape"_a,
             "owner"_a)
        .def("delete", requests::remove, nothing, "keys"_a)
        .def("delete_prefix", requests::remove_prefix, requests::removed, "prefix"_a)
        .def("stat", requests::stat, requests::sizes, "keys"_a)
        .def("measure", requests::measure, requests::measured, "prefix"_a, "any"_a)
        .def("list_page", requests::list_page, requests::page, "prefix"_a, "delimited"_a,
             "cursor"_a)
        .def("stats", requests::stats, text)
        .def("operate", requests::operate, text, "request"_a)
        .def("begin_space", requests::begin_space, nothing, "name"_a, "quota"_a, "timeout_ms"_a)
        .def("renew_space", requests::renew_space, nothing, "name"_a)
        .def("end_space", requests::end_space, nothing, "name"_a)
        .def("ping", requests::ping, nothing);
}

}  // namespace ucxstore::bindings

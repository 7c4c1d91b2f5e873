#include "bindings/py_connection.hpp"

#include <unistd.h>

#include <utility>

#include "bindings/gil.hpp"
#include "client/batch.hpp"

namespace ucxstore::py {
namespace {

QueuePointer queue_of(const PyCompletions* completions) {
    return completions == nullptr ? nullptr : completions->queue;
}

nb::object nothing(Operation&) { return nb::none(); }

wire::Reader reply_of(const Item& item) {
    return wire::Reader({item.owned->data(), item.owned->size()});
}

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

}  // namespace

PyConnection::PyConnection(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection)
    : client_(std::move(client)), connection_(std::move(connection)), pid_(getpid()) {}

PyConnection::~PyConnection() {
    if (getpid() == pid_) {
        close();
    } else {
        // In a forked child not even the memory of the parent's UCX objects may be given back.
        new std::shared_ptr<Client>(std::move(client_));
        new std::shared_ptr<Connection>(std::move(connection_));
    }
}

std::vector<std::string> PyConnection::lanes() {
    const WithoutGil released;
    return client_->lanes(connection_);
}

PyOperation::Object PyConnection::start(std::shared_ptr<Operation> operation, nb::object owners,
                                        Convert convert) {
    return PyOperation::start(client_, connection_, std::move(operation), std::move(owners),
                              std::move(convert));
}

PyOperation::Object PyConnection::get(const Keys& keys, const std::vector<Ranges>& ranges,
                                      double timeout, PyCompletions* completions,
                                      const std::optional<Versions>& versions) {
    require(ranges.size() == keys.size(), "one list of ranges a key");
    require(!versions || versions->size() == keys.size(), "one version a key");
    auto operation = make_operation(keys, Operation::Kind::get, timeout, queue_of(completions));
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        wanted[i].selection = to_selection(ranges[i]);
        operation->items[i].version = versions ? (*versions)[i] : wire::kAnyVersion;
    }
    request_gets(*operation, std::move(wanted));
    return start(operation, nb::none(), [](Operation& done) {
        return each_item(done, [](const Item& item) {
            const bool changed = item.status == wire::Status::changed;
            const nb::object data = changed ? nb::none() : nb::cast(to_numpy(item.owned));
            return nb::make_tuple(data, item.value_size, item.version);
        });
    });
}

PyOperation::Object PyConnection::get_into(const Keys& keys, const std::vector<Ranges>& ranges,
                                           const std::vector<ArrayTuple>& outs,
                                           const Owners& owners, double timeout,
                                           PyCompletions* completions) {
    require(ranges.size() == keys.size() && outs.size() == keys.size(),
            "one list of ranges and one out a key");
    auto operation = make_operation(keys, Operation::Kind::get, timeout, queue_of(completions));
    std::vector<wire::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(outs[i]);
        wanted[i].selection = to_selection(ranges[i]);
    }
    request_gets(*operation, std::move(wanted));
    return start(operation, owners, [](Operation& done) {
        return each_item(done, [](const Item& item) { return item.size; });
    });
}

PyOperation::Object PyConnection::read_boxes(const Keys& keys, const Integers& boxes,
                                             const ArrayTuple& out,
                                             const std::vector<std::int64_t>& chunk_shape,
                                             const nb::object& owner, double timeout,
                                             PyCompletions* completions) {
    const Array target = to_array(out);
    const Array chunk = stored_chunk(chunk_shape, target.itemsize);
    const std::size_t ndim = chunk.dims.size();
    require(target.dims.size() == ndim, "out and chunk of different numbers of axes");
    const auto numbers = to_integers(boxes, keys.size() * 3 * ndim);
    auto operation = make_operation(keys, Operation::Kind::get, timeout, queue_of(completions));
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
    request_gets(*operation, std::move(wanted));
    return start(operation, owner, [](Operation& done) -> nb::object {
        nb::list missing;
        for (std::size_t i = 0; i < done.items.size(); ++i) {
            if (done.items[i].status == wire::Status::missing) {
                missing.append(i);
            }
        }
        return missing;
    });
}

PyOperation::Object PyConnection::read_parts(
    const Keys& keys, const std::vector<PartTuple>& sources, const std::vector<PartTuple>& targets,
    std::uint64_t address, const std::vector<std::int64_t>& expected, const Versions& versions,
    const nb::object& owner, double timeout, PyCompletions* completions) {
    require(sources.size() == keys.size() && targets.size() == keys.size() &&
                expected.size() == keys.size() && versions.size() == keys.size(),
            "one source, target, size and version a key");
    auto operation = make_operation(keys, Operation::Kind::get, timeout, queue_of(completions));
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
    request_gets(*operation, std::move(wanted));
    return start(operation, owner, [](Operation& done) -> nb::object {
        nb::list outcomes;
        for (const Item& item : done.items) {
            outcomes.append(item.status == wire::Status::missing   ? 1
                            : item.status == wire::Status::changed ? 2
                                                                   : 0);
        }
        return outcomes;
    });
}

PyOperation::Object PyConnection::set(const Keys& keys, const std::vector<ArrayTuple>& values,
                                      const Owners& owners, bool if_absent, double timeout,
                                      PyCompletions* completions) {
    require(values.size() == keys.size(), "one value a key");
    const auto kind = if_absent ? Operation::Kind::set_if_absent : Operation::Kind::set;
    auto operation = make_operation(keys, kind, timeout, queue_of(completions));
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(values[i]);
    }
    return start(operation, owners, [](Operation& done) {
        return each_item(done, [](const Item& item) { return item.status != wire::Status::kept; });
    });
}

PyOperation::Object PyConnection::set_parts(const Keys& keys,
                                            const std::vector<std::vector<ArrayTuple>>& values,
                                            const Owners& owners, double timeout,
                                            PyCompletions* completions) {
    require(values.size() == keys.size(), "one value a key");
    auto operation = make_operation(keys, Operation::Kind::set, timeout, queue_of(completions));
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory = to_memory(values[i]);
    }
    return start(operation, owners, nothing);
}

PyOperation::Object PyConnection::write_boxes(const Keys& keys, const Integers& starts,
                                              const ArrayTuple& value,
                                              const std::vector<std::int64_t>& chunk_shape,
                                              const nb::object& owner, double timeout,
                                              PyCompletions* completions) {
    const Array source = to_array(value);
    const std::size_t ndim = chunk_shape.size();
    require(source.dims.size() == ndim, "value and chunk of different numbers of axes");
    const auto numbers = to_integers(starts, keys.size() * ndim);
    auto operation = make_operation(keys, Operation::Kind::set, timeout, queue_of(completions));
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory =
            Memory{source.base, part(source, numbers.data() + i * ndim, chunk_shape.data())};
    }
    return start(operation, owner, nothing);
}

PyOperation::Object PyConnection::remove(const Keys& keys, double timeout,
                                         PyCompletions* completions) {
    return start(make_calls(wire::Op::remove, keys, timeout, queue_of(completions)), nb::none(),
                 nothing);
}

PyOperation::Object PyConnection::stat(const Keys& keys, double timeout,
                                       PyCompletions* completions) {
    return start(make_calls(wire::Op::stat, keys, timeout, queue_of(completions)), nb::none(),
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

PyOperation::Object PyConnection::remove_prefix(const std::string& prefix, double timeout,
                                                PyCompletions* completions) {
    std::string body;
    wire::put_string(body, prefix);
    return start(
        make_call(wire::Op::remove_prefix, prefix, std::move(body), timeout, queue_of(completions)),
        nb::none(),
        [](Operation& done) -> nb::object { return nb::int_(reply_of(done.items[0]).u64()); });
}

PyOperation::Object PyConnection::measure(const std::string& prefix, bool any, double timeout,
                                          PyCompletions* completions) {
    std::string body;
    wire::put_string(body, prefix);
    wire::put_u8(body, any ? 1 : 0);
    return start(
        make_call(wire::Op::measure, prefix, std::move(body), timeout, queue_of(completions)),
        nb::none(), [](Operation& done) -> nb::object {
            wire::Reader reader = reply_of(done.items[0]);
            const std::uint64_t keys = reader.u64();
            return nb::make_tuple(keys, reader.u64());
        });
}

PyOperation::Object PyConnection::list_page(const std::string& prefix, bool delimited,
                                            const std::string& cursor, double timeout,
                                            PyCompletions* completions) {
    std::string body;
    wire::put_string(body, prefix);
    wire::put_u8(body, delimited ? 1 : 0);
    wire::put_string(body, cursor);
    return start(make_call(wire::Op::list, prefix, std::move(body), timeout, queue_of(completions)),
                 nb::none(), [](Operation& done) -> nb::object {
                     wire::Reader reader = reply_of(done.items[0]);
                     const std::string next = reader.string();
                     nb::list names;
                     while (!reader.done()) {
                         names.append(nb::cast(reader.string()));
                     }
                     return nb::make_tuple(names, next);
                 });
}

PyOperation::Object PyConnection::stats(double timeout, PyCompletions* completions) {
    return start(make_call(wire::Op::stats, "", "", timeout, queue_of(completions)), nb::none(),
                 [](Operation& done) -> nb::object {
                     const Item& item = done.items[0];
                     return nb::bytes(item.owned->data(), item.owned->size());
                 });
}

PyOperation::Object PyConnection::begin_space(const std::string& name, std::uint64_t quota,
                                              std::uint64_t timeout_ms, double timeout,
                                              PyCompletions* completions) {
    std::string body;
    wire::put_string(body, name);
    wire::put_u64(body, quota);
    wire::put_u64(body, timeout_ms);
    return start(
        make_call(wire::Op::begin_space, name, std::move(body), timeout, queue_of(completions)),
        nb::none(), nothing);
}

PyOperation::Object PyConnection::renew_space(const std::string& name, double timeout,
                                              PyCompletions* completions) {
    std::string body;
    wire::put_string(body, name);
    return start(
        make_call(wire::Op::renew_space, name, std::move(body), timeout, queue_of(completions)),
        nb::none(), nothing);
}

PyOperation::Object PyConnection::end_space(const std::string& name, double timeout,
                                            PyCompletions* completions) {
    std::string body;
    wire::put_string(body, name);
    return start(
        make_call(wire::Op::end_space, name, std::move(body), timeout, queue_of(completions)),
        nb::none(), nothing);
}

PyOperation::Object PyConnection::ping(double timeout, PyCompletions* completions) {
    return start(make_call(wire::Op::ping, "", "", timeout, queue_of(completions)), nb::none(),
                 nothing);
}

}  // namespace ucxstore::py

#include "bindings/convert.hpp"

#include <algorithm>
#include <cstring>

namespace ucxstore::bindings {
namespace {

const char* exception_name(base::ErrorKind kind) {
    switch (kind) {
        case base::ErrorKind::argument:
            return nullptr;  // the builtin ValueError
        case base::ErrorKind::invalid_key:
            return "InvalidKeyError";
        case base::ErrorKind::connect:
            return "ConnectError";
        case base::ErrorKind::server_lost:
            return "ServerLostError";
        case base::ErrorKind::timeout:
            return "RequestTimeoutError";
        case base::ErrorKind::cancelled:
            return "OperationCancelledError";
        case base::ErrorKind::read_only:
            return "ReadOnlyServerError";
        case base::ErrorKind::denied:
            return "GrantError";
        case base::ErrorKind::value_too_large:
            return "ValueTooLargeError";
        case base::ErrorKind::chunk_size:
            return "ChunkSizeError";
        case base::ErrorKind::storage:
            return "StorageError";
        case base::ErrorKind::scratch_ended:
            return "ScratchEndedError";
        case base::ErrorKind::undecoded:
            return "UndecodedError";  // of another module: users do not see it
        case base::ErrorKind::evicted:
            return "EvictedError";
        case base::ErrorKind::unknown_outcome:
            return "UnknownOutcomeError";
        case base::ErrorKind::change_lost:
            return "ChangeLostError";
        case base::ErrorKind::change_timeout:
            return "ChangeTimeoutError";
        case base::ErrorKind::integrity:
            return "IntegrityError";
        case base::ErrorKind::protocol:
            return "ProtocolError";
        case base::ErrorKind::resource:
            return "ResourceError";
        case base::ErrorKind::memory:
            return "OutOfMemoryError";
        case base::ErrorKind::no_ucx:
            return "UcxUnavailableError";
    }
    return "UcxStoreError";
}

}  // namespace

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const base::Error& error) {
        const char* name = exception_name(error.kind());
        if (name == nullptr) {
            PyErr_SetString(PyExc_ValueError, error.what());
            return;
        }
        const bool is_internal = error.kind() == base::ErrorKind::undecoded;
        const char* module = is_internal ? "ucxstore.base.undecoded" : "ucxstore.base.errors";
        const nb::object type = nb::module_::import_(module).attr(name);
        PyErr_SetString(type.ptr(), error.what());
    }
}

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000));
}

ucx::SharedMemory to_sharing(bool shares) {
    return shares ? ucx::SharedMemory::on : ucx::SharedMemory::off;
}

protocol::Token to_token(const nb::bytes& bytes) {
    protocol::Token token;
    if (bytes.size() != token.size()) {
        throw base::Error(base::ErrorKind::argument, "a session token has 16 bytes");
    }
    std::memcpy(token.data(), bytes.data(), token.size());
    return token;
}

std::string to_string(const nb::bytes& bytes) {
    return {static_cast<const char*>(bytes.data()), bytes.size()};
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

client::Array to_array(const ArrayTuple& tuple) {
    const auto& [address, shape, strides, itemsize] = tuple;
    return client::Array::strided(reinterpret_cast<std::byte*>(address), shape, strides, itemsize);
}

client::Memory to_memory(const ArrayTuple& tuple) {
    const client::Array array = to_array(tuple);
    return {array.base, array.layout()};
}

client::Memory to_joined_memory(const std::vector<ArrayTuple>& tuples) {
    std::vector<client::Memory::Part> parts;
    for (const ArrayTuple& tuple : tuples) {
        const client::Array array = to_array(tuple);
        parts.push_back({array.base, array.layout()});
    }
    return client::Memory(std::move(parts));
}

client::StridedPart to_part(const PartTuple& tuple) {
    const auto& [first, run, counts, strides, offsets] = tuple;
    client::StridedPart part{first, run, counts, strides, {}};
    if (offsets) {
        part.offsets.emplace(offsets->data(), offsets->shape(0));
    }
    return part;
}

std::vector<std::int64_t> to_integers(const nb::list& list) {
    std::vector<std::int64_t> numbers;
    numbers.reserve(list.size());
    for (const nb::handle item : list) {
        const long long number = PyLong_AsLongLong(item.ptr());
        if (number == -1 && PyErr_Occurred()) {
            throw nb::python_error();
        }
        numbers.push_back(number);
    }
    return numbers;
}

protocol::Selection to_selection(const Ranges& ranges) {
    std::vector<protocol::Range> wanted;
    for (const auto& [kind, a, b] : ranges) {
        base::require(kind >= 1 && kind <= 3, "an unknown kind of byte range");
        wanted.push_back({static_cast<protocol::Range::Kind>(kind), a, b});
    }
    return wanted;
}

namespace {

nb::capsule owner_of(const std::shared_ptr<memory::Region>& region) {
    auto* holder = new std::shared_ptr<memory::Region>(region);
    return nb::capsule(holder, [](void* pointer) noexcept {
        delete static_cast<std::shared_ptr<memory::Region>*>(pointer);
    });
}

}  // namespace

Bytes to_numpy(const std::shared_ptr<memory::Region>& region) {
    return Bytes(region->data(), {static_cast<std::size_t>(region->size())}, owner_of(region));
}

ReadOnlyBytes to_read_only(const std::shared_ptr<memory::Region>& region) {
    return ReadOnlyBytes(region->data(), {static_cast<std::size_t>(region->size())},
                         owner_of(region));
}

nb::object to_readable(const std::shared_ptr<memory::Region>& region) {
    if (!region->read_only()) {
        return nb::cast(to_numpy(region));
    }
    return nb::cast(to_read_only(region));
}

}  // namespace ucxstore::bindings

#include "bindings/convert.hpp"

#include <algorithm>
#include <cstring>

namespace ucxstore::py {
namespace {

const char* exception_name(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::argument:
            return nullptr;  // the builtin ValueError
        case ErrorKind::invalid_key:
            return "InvalidKeyError";
        case ErrorKind::connect:
            return "ConnectError";
        case ErrorKind::server_lost:
            return "ServerLostError";
        case ErrorKind::timeout:
            return "RequestTimeoutError";
        case ErrorKind::cancelled:
            return "OperationCancelledError";
        case ErrorKind::read_only:
            return "ReadOnlyServerError";
        case ErrorKind::denied:
            return "GrantError";
        case ErrorKind::value_too_large:
            return "ValueTooLargeError";
        case ErrorKind::chunk_size:
            return "ChunkSizeError";
        case ErrorKind::storage:
            return "StorageError";
        case ErrorKind::scratch_ended:
            return "ScratchEndedError";
        case ErrorKind::evicted:
            return "EvictedError";
        case ErrorKind::unknown_outcome:
            return "UnknownOutcomeError";
        case ErrorKind::change_lost:
            return "ChangeLostError";
        case ErrorKind::change_timeout:
            return "ChangeTimeoutError";
        case ErrorKind::integrity:
            return "IntegrityError";
        case ErrorKind::protocol:
            return "ProtocolError";
        case ErrorKind::resource:
            return "ResourceError";
        case ErrorKind::memory:
            return "OutOfMemoryError";
        case ErrorKind::no_ucx:
            return "UcxUnavailableError";
    }
    return "UcxStoreError";
}

}  // namespace

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const Error& error) {
        const char* name = exception_name(error.kind());
        if (name == nullptr) {
            PyErr_SetString(PyExc_ValueError, error.what());
            return;
        }
        const nb::object type = nb::module_::import_("ucxstore.base.errors").attr(name);
        PyErr_SetString(type.ptr(), error.what());
    }
}

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000));
}

SharedMemory to_sharing(bool shares) { return shares ? SharedMemory::on : SharedMemory::off; }

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

Array to_array(const ArrayTuple& tuple) {
    const auto& [address, shape, strides, itemsize] = tuple;
    return Array::strided(reinterpret_cast<std::byte*>(address), shape, strides, itemsize);
}

Memory to_memory(const ArrayTuple& tuple) {
    const Array array = to_array(tuple);
    return {array.base, array.layout()};
}

Memory to_joined_memory(const std::vector<ArrayTuple>& tuples) {
    std::vector<Memory::Part> parts;
    for (const ArrayTuple& tuple : tuples) {
        const Array array = to_array(tuple);
        parts.push_back({array.base, array.layout()});
    }
    return Memory(std::move(parts));
}

StridedPart to_part(const PartTuple& tuple) {
    const auto& [first, run, counts, strides, offsets] = tuple;
    StridedPart part{first, run, counts, strides, {}};
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

wire::Selection to_selection(const Ranges& ranges) {
    std::vector<wire::Range> wanted;
    for (const auto& [kind, a, b] : ranges) {
        require(kind >= 1 && kind <= 3, "an unknown kind of byte range");
        wanted.push_back({static_cast<wire::Range::Kind>(kind), a, b});
    }
    return wanted;
}

namespace {

nb::capsule owner_of(const std::shared_ptr<Region>& region) {
    auto* holder = new std::shared_ptr<Region>(region);
    return nb::capsule(holder, [](void* pointer) noexcept {
        delete static_cast<std::shared_ptr<Region>*>(pointer);
    });
}

}  // namespace

Bytes to_numpy(const std::shared_ptr<Region>& region) {
    return Bytes(region->data(), {static_cast<std::size_t>(region->size())}, owner_of(region));
}

ReadOnlyBytes to_read_only(const std::shared_ptr<Region>& region) {
    return ReadOnlyBytes(region->data(), {static_cast<std::size_t>(region->size())},
                         owner_of(region));
}

nb::object to_readable(const std::shared_ptr<Region>& region) {
    if (!region->read_only()) {
        return nb::cast(to_numpy(region));
    }
    return nb::cast(to_read_only(region));
}

}  // namespace ucxstore::py

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

struct Part {
    std::vector<std::int64_t> offsets;
    std::uint64_t run;
    std::vector<Dim> dims;
};

Part to_part(const PartTuple& tuple) {
    const auto& [first, run, counts, strides, offsets] = tuple;
    require(counts.size() == strides.size(), "counts and strides of different lengths");
    Part part{{first}, run, {}};
    std::uint64_t size = run;
    bool countable = true;
    for (std::size_t axis = 0; axis < counts.size(); ++axis) {
        part.dims.push_back({counts[axis], strides[axis]});
        countable = countable && !__builtin_mul_overflow(size, counts[axis], &size);
    }
    if (offsets) {
        part.offsets.assign(offsets->data(), offsets->data() + offsets->shape(0));
        for (std::int64_t& offset : part.offsets) {
            countable = countable && !__builtin_add_overflow(offset, first, &offset);
        }
        countable = countable && !__builtin_mul_overflow(size, offsets->shape(0), &size);
    }
    require(countable, "a part larger than any memory");
    return part;
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

void require(bool condition, const char* what) {
    if (!condition) {
        throw Error(ErrorKind::argument, what);
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

std::uint64_t Array::nbytes() const { return Layout::strided(0, itemsize, dims).size(); }

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

Memory to_memory(const std::vector<ArrayTuple>& tuples) {
    std::vector<Memory::Part> parts;
    for (const ArrayTuple& tuple : tuples) {
        const Array array = to_array(tuple);
        parts.push_back({array.base, Layout::strided(0, array.itemsize, array.dims)});
    }
    return Memory(std::move(parts));
}

Layout to_target(const PartTuple& tuple) {
    Part part = to_part(tuple);
    return Layout::gathered(std::move(part.offsets), part.run, part.dims);
}

Layout to_source(const PartTuple& tuple) {
    Part part = to_part(tuple);
    if (const char* fault = wire::box_fault(part.offsets, part.run, part.dims)) {
        throw Error(ErrorKind::argument, fault);
    }
    return Layout::gathered(std::move(part.offsets), part.run, part.dims);
}

Layout part(const Array& array, const std::int64_t* start, const std::int64_t* count) {
    std::int64_t offset = 0;
    std::vector<Dim> dims(array.dims.size());
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        const auto length = static_cast<std::int64_t>(array.dims[axis].count);
        if (start[axis] < 0 || count[axis] < 1 || start[axis] > length ||
            count[axis] > length - start[axis]) {
            throw Error(ErrorKind::argument,
                        "a box outside its array, on axis " + std::to_string(axis));
        }
        offset += start[axis] * array.dims[axis].stride;
        dims[axis] = {static_cast<std::uint64_t>(count[axis]), array.dims[axis].stride};
    }
    return Layout::strided(offset, array.itemsize, dims);
}

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

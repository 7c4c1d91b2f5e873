// Conversion between Python's values and the core's, without other logic.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.hpp"
#include "client/array.hpp"
#include "client/link.hpp"
#include "client/operation.hpp"
#include "memory/region.hpp"
#include "protocol/wire.hpp"
#include "ucx/context.hpp"

namespace nb = nanobind;

namespace ucxstore::bindings {

// Raises what an Error is in Python: a class of ucxstore.base.errors, or a builtin.
void translate(const std::exception_ptr& pointer, void*);

std::chrono::milliseconds milliseconds(double seconds);
ucx::SharedMemory to_sharing(bool shares);
protocol::Token to_token(const nb::bytes& bytes);
std::string to_string(const nb::bytes& bytes);
nb::bytes to_bytes(const std::string& text);

// An array as Python describes it: address, shape, strides in bytes, itemsize.
using ArrayTuple =
    std::tuple<std::uint64_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::uint64_t>;

client::Array to_array(const ArrayTuple& tuple);
client::Memory to_memory(const ArrayTuple& tuple);
// A value of any number of arrays, joined.
client::Memory to_joined_memory(const std::vector<ArrayTuple>& tuples);

// As StridedPart, which must not outlive the tuple.
using Offsets = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PartTuple = std::tuple<std::int64_t, std::uint64_t, std::vector<std::uint64_t>,
                             std::vector<std::int64_t>, std::optional<Offsets>>;
client::StridedPart to_part(const PartTuple& tuple);

// A Python list of ints, without a Python-level loop.
std::vector<std::int64_t> to_integers(const nb::list& list);

// Byte ranges: (kind, a, b), as protocol::Range has them.
using Ranges = std::vector<std::tuple<int, std::uint64_t, std::uint64_t>>;
protocol::Selection to_selection(const Ranges& ranges);

// Each of them, converted.
template <typename To, typename From>
std::vector<To> each(To (*convert)(const From&), const std::vector<From>& all) {
    std::vector<To> converted;
    converted.reserve(all.size());
    for (const From& one : all) {
        converted.push_back(convert(one));
    }
    return converted;
}

// A numpy array over a region, which it keeps alive.
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
Bytes to_numpy(const std::shared_ptr<memory::Region>& region);
// One that cannot be written to.
using ReadOnlyBytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
ReadOnlyBytes to_read_only(const std::shared_ptr<memory::Region>& region);
// The same, of any region: it cannot be written to where the region can only be read.
nb::object to_readable(const std::shared_ptr<memory::Region>& region);

}  // namespace ucxstore::bindings

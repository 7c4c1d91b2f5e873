// ucxstore._core.join.
#pragma once

#include <optional>
#include <vector>

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

using Joinable = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An array over values that lie in shared memory or in files, one after the other; it keeps them.
// None where they cannot be mapped so.
std::optional<ReadOnlyBytes> join_values(std::vector<Joinable> values);

}  // namespace ucxstore::bindings

// ucxstore._core.DecodedValues, whose decoder is Python's.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_decoded(nb::module_& module);

}  // namespace ucxstore::bindings

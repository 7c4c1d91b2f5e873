// The core's events, as Python's loggers take them.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::py {

void bind_log(nb::module_& module);

}  // namespace ucxstore::py

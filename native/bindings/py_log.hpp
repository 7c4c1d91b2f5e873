// The core's events, as dictionaries for Python's loggers.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_log(nb::module_& module);

}  // namespace ucxstore::bindings

// ucxstore._core.Server.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_server(nb::module_& module);

}  // namespace ucxstore::bindings

// ucxstore._core.Client and LocalClient.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_client(nb::module_& module);

}  // namespace ucxstore::bindings

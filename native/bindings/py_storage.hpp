// ucxstore._core.MemoryStorage, DirectoryStorage and Spaces.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_storage(nb::module_& module);

}  // namespace ucxstore::bindings

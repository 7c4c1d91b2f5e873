// ucxstore._core.DiskCache, which waits for the disk without the GIL.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

void bind_disk(nb::module_& module);

}  // namespace ucxstore::bindings

// The second tier of a server's cache, as Python sees it, which waits for the disk without the GIL.
#pragma once

#include "bindings/convert.hpp"

namespace ucxstore::py {

void bind_disk(nb::module_& module);

}  // namespace ucxstore::py

// Whether shared memory of another process can be read without harm.
#pragma once

#include "base/handle.hpp"

namespace ucxstore::base {

// Whether to read a shared mapping of the file never raises SIGBUS: nobody can cut it, and it is of
// ordinary pages. A hole in a file of reserved huge pages raises it where none is left.
bool is_steady(const Fd& file);

}  // namespace ucxstore::base

// Give memory that was freed back to the system.
#pragma once

namespace ucxstore::threads {

// Lets a thread call malloc_trim() a second from now, and once a second at the most: it looks
// through all memory. glibc keeps what small values and UCX's buffers took, in the arenas of the
// threads that used them.
void trim_soon() noexcept;

}  // namespace ucxstore::threads

// Closes descriptors whose close may wait: for a file system that does not answer, or a connection
// that lingers. Whoever passes one decides for how long.
#pragma once

#include "base/handle.hpp"

namespace ucxstore::local {

// Closes it on a thread of its own. Where many such threads wait already, it is never closed: that
// costs a descriptor, and no more.
void close_apart(Fd fd) noexcept;

// Whether it is memory that somebody shares (memfd_create(2)): its close waits for nobody.
bool is_memory(int fd);

}  // namespace ucxstore::local

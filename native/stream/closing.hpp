// Closes descriptors, which may wait: for a file system that does not answer, or a connection
// that lingers. Whoever passes one decides for how long.
#pragma once

#include <memory>

#include "base/handle.hpp"

namespace ucxstore::stream {

// Closes it on a thread for that, and lets go of `until_closed` then. Where many such threads wait
// already, it waits for one: the caller bounds how many do.
void close_apart(base::Fd fd, std::shared_ptr<const void> until_closed = nullptr) noexcept;

// Whether it is memory that somebody shares (memfd_create(2)): its close waits for nobody, but
// takes as long as its pages take to go.
bool is_memory(int fd);

}  // namespace ucxstore::stream

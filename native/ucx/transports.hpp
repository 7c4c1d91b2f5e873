// The transports that UCX may use for a connection, as its option TLS names them.
#pragma once

#include <optional>
#include <string>

namespace ucxstore::ucx {

// Whether UCX may go through shared memory: only where both sides of a connection ask for it. Else
// it has none: whoever may open its segments could read, change and break what goes there.
enum class SharedMemory { off, on };

// The option TLS for what a user has said of it, if anything: without UCX's shared memory, or with
// POSIX alone, whose segments are for one user. Those of System V are for his group, too. Throws
// Error(argument) where that leaves nothing of what the user wants.
std::string transports(const std::optional<std::string>& wanted, SharedMemory memory);

}  // namespace ucxstore::ucx

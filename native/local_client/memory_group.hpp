// The control group that a process's memory counts to, and whether it has a limit. Memory that one
// process touches first and another one keeps counts to the group of the first for as long as it
// lives. Where that group has a limit, what a server keeps could end in the death of its clients.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ucxstore::local_client {

// The group, of what /proc/PID/cgroup has.
std::string memory_group(std::string_view cgroup);

// Whether the group or one above it has a limit of memory, as far as it can be seen: `mounts` is
// /proc/self/mountinfo, `read` returns what is in a file, or nothing where there is none.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;
bool has_memory_limit(std::string_view cgroup, std::string_view mounts, const ReadFile& read);

// Whether this process can leave memory to the one at the other end of a Unix socket: both are in
// one group, or this one's has no limit.
bool can_leave_memory(int socket);

}  // namespace ucxstore::local_client

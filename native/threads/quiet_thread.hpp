// Starts threads of the core.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace ucxstore::threads {

// How much of a processor a thread gets that others want, too, and when. `low` is for one that
// computes for long: with an equal share, the kernel lets a session that has something to do for a
// moment wait behind it for a whole tick, 4 ms. But not at the end of all: others wait for what it
// holds. `prompt` is for one that others wait for at each of its turns, which are short: its share
// is that of others, but it gets its turns at once (by a short `sched_runtime` of sched_setattr(2),
// from Linux 6.12 on; before, it is as `usual`). Not for one that polls, such as those of UCX:
// where many of these share a processor, they only take it from one another, and nobody gets on.
enum class Priority { usual, low, prompt };

// A thread that takes no signals: those are for the process's own threads, as Python handles them
// on its main thread. `name` has at most 15 bytes. Throws Error(resource).
std::thread start_quiet_thread(const std::string& name, std::function<void()> run,
                               Priority priority = Priority::usual);

}  // namespace ucxstore::threads

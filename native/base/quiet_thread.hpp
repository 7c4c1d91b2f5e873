// Starts threads of the core.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace ucxstore {

// How much of a processor a thread gets that others want, too. `low` is for one that computes for
// long: with an equal share, the kernel lets a session that has something to do for a moment wait
// behind it for a whole tick, 4 ms. But not at the end of all: others wait for what it holds.
enum class Priority { usual, low };

// A thread that takes no signals: those are for the process's own threads, as Python handles them
// on its main thread. `name` has at most 15 bytes. Throws Error(resource).
std::thread start_quiet_thread(const std::string& name, std::function<void()> run,
                               Priority priority = Priority::usual);

}  // namespace ucxstore

// Starts threads of the core.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace ucxstore {

// A thread that takes no signals: those are for the process's own threads, as Python handles them
// on its main thread. `name` has at most 15 bytes. Throws Error(resource).
std::thread start_quiet_thread(const std::string& name, std::function<void()> run);

}  // namespace ucxstore

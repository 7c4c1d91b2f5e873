// Reclaimer: free files that have lost their names, on a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/handle.hpp"

namespace ucxstore::threads {

// A file without a name is freed as its last descriptor is closed. That takes a while: its pages go
// (16 MiB of them in 2 ms), and the file system may tell the disk about every block. A progress
// thread that replaces or removes a file opens it first, and leaves the closing to this.
class Reclaimer {
  public:
    Reclaimer();
    Reclaimer(const Reclaimer&) = delete;
    Reclaimer& operator=(const Reclaimer&) = delete;
    // Waits until all is freed.
    ~Reclaimer();

    // Closes a descriptor, which may be empty, soon; or at once, if too many wait already, or files
    // with too many bytes of memory. `memory`: how many this one has.
    void reclaim(base::Fd file, std::uint64_t memory = 0) noexcept;

    // Waits until all that it has taken is freed: for who needs the room on the disk.
    void wait() noexcept;

  private:
    struct State;
    static void run(const std::shared_ptr<State>& state);

    const std::shared_ptr<State> state_;
};

// The file of this name, opened for nothing but to be reclaimed; empty where that is not possible.
base::Fd open_to_reclaim(const base::Fd& directory, const std::string& name);

}  // namespace ucxstore::threads

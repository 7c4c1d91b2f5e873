// Files of this process's own in a directory. Only this process knows what is in them: so those of
// an earlier one are removed.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "base/handle.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::files {

// Called from any thread.
class OwnFiles {
  public:
    // The directory exists, and nobody else uses files in it whose names end so: they are removed.
    // Throws Error(storage).
    OwnFiles(const std::string& directory, std::string suffix);

    const std::string& directory() const { return path_; }
    // Names a file that is not there yet.
    std::uint64_t new_number() { return ++last_; }
    // A new file, to be read and written; empty where that fails, as errno says.
    base::Fd create(std::uint64_t number) const;
    // To be read; empty where that fails.
    base::Fd open(std::uint64_t number) const;
    // Does nothing where there is none, nor in a forked child: they are its parent's. `reclaimer`
    // frees the file, if given; else that is done here.
    void remove(std::uint64_t number, threads::Reclaimer* reclaimer = nullptr) const noexcept;
    // Removes all of them, and those of earlier processes. Throws Error(storage).
    void remove_all() const;

  private:
    std::string name_of(std::uint64_t number) const;

    const std::string path_;
    const std::string suffix_;
    const std::string run_;  // in the names: no other process has files of the same
    const pid_t owner_ = getpid();
    base::Fd fd_;
    std::atomic<std::uint64_t> last_ = 0;
};

}  // namespace ucxstore::files

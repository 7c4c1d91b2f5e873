// Memory that this process has let go of, and others keep: files that they have open or mapped.
//
// The kernel tells the end of a file that has no name, whoever had it last, and however: by a
// descriptor, one that is on its way through a socket, one that was opened with O_PATH, or a
// mapping (inotify(7), IN_DELETE_SELF).
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/handle.hpp"
#include "base/mutex.hpp"

namespace ucxstore::shared {

// Any thread.
class Leftovers {
  public:
    // So many bytes of a file count from now on, until it is no more. To be called before this
    // process lets go of it, and before they are no longer counted elsewhere. Where the kernel does
    // not tell, they do not count.
    void add(int descriptor, std::uint64_t bytes) noexcept;
    std::uint64_t bytes();

  private:
    void read_ends() REQUIRES(mutex_);

    base::Mutex mutex_;
    base::Fd events_ GUARDED_BY(mutex_);
    std::unordered_map<int, std::uint64_t> files_ GUARDED_BY(mutex_);  // by their watches
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ucxstore::shared

// Sweep: remove what killed servers have left in a directory, beside those that serve it.
#pragma once

#include <memory>

#include "files/directory_root.hpp"

namespace ucxstore::storage {

// Looks through the whole directory once, on a thread of its own, which does nothing for half of
// the time. A file that is not finished goes if nobody has it: its writer locks it, and the kernel
// frees the locks of those that end.
class Sweep {
  public:
    // `root` must outlive it.
    explicit Sweep(const files::DirectoryRoot& root);
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;
    // Waits until the thread has looked at the name that it is at.
    ~Sweep();

    // Without a thread, the next server does it.
    void start() noexcept;

  private:
    struct State;
    const std::unique_ptr<State> state_;
};

}  // namespace ucxstore::storage

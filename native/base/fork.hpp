// Fork safety: forks wait until no thread is inside UCX, and children leave the parent's UCX alone.
#pragma once

#include <vector>

namespace ucxstore::base {

// Notes which epoll instance UCX's accepting thread waits on. To be held while a process makes its
// first worker, which makes UCX start that thread.
class AsyncThreadWatch {
  public:
    AsyncThreadWatch();
    AsyncThreadWatch(const AsyncThreadWatch&) = delete;
    AsyncThreadWatch& operator=(const AsyncThreadWatch&) = delete;
    ~AsyncThreadWatch();

  private:
    bool first_;
    std::vector<int> before_;
};

// In a forked child, before it uses UCX: puts an epoll instance of its own in the place of the one
// that UCX's accepting thread waits on. They share it otherwise, the thread stays with the parent,
// and the parent's then spins on descriptors that only the child has (measured: one core at 100 %).
void separate_from_parent();

// Held while a thread is inside UCX. A fork waits meanwhile: a child would inherit the locks that
// UCX has taken, and nobody would release them. For progress, and for making and ending contexts.
// They nest.
class InUcx {
  public:
    InUcx();
    InUcx(const InUcx&) = delete;
    InUcx& operator=(const InUcx&) = delete;
    ~InUcx();
};

// Held inside an InUcx while the thread sleeps, and so is not inside UCX.
class OutOfUcx {
  public:
    OutOfUcx();
    OutOfUcx(const OutOfUcx&) = delete;
    OutOfUcx& operator=(const OutOfUcx&) = delete;
    ~OutOfUcx();
};

// Inside an InUcx: lets a fork that waits go first.
void let_fork();

// Whether this process was forked from one that had started UCX. UCX has hooked mmap by then, and
// if another thread of the parent held the lock of the hooks, it is never released here. To be
// called for each context that is made.
bool forked_after_ucx_started();

}  // namespace ucxstore::base

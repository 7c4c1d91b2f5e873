// What a forked child inherits of UCX and must not keep using.
#pragma once

#include <set>

namespace ucxstore {

// To be called round the making of a process's first worker, which makes UCX start its accepting
// thread: notes which epoll instance is that thread's.
class AsyncThreadWatch {
  public:
    AsyncThreadWatch();
    AsyncThreadWatch(const AsyncThreadWatch&) = delete;
    AsyncThreadWatch& operator=(const AsyncThreadWatch&) = delete;
    ~AsyncThreadWatch();

  private:
    bool first_;
    std::set<int> before_;
};

// In a forked child, before it uses UCX: puts an epoll instance of its own in the place of the one
// that UCX's accepting thread waits on. They share it otherwise, the thread stays with the parent,
// and the parent's then spins on descriptors that only the child has (measured: one core at 100 %).
void separate_from_parent();

// While one is alive, a fork waits: UCX has locks that a child would inherit taken, for ever, if
// some other thread was inside of it. For whatever may take one: progress, the making and the
// ending of contexts. They nest.
class InUcx {
  public:
    InUcx();
    InUcx(const InUcx&) = delete;
    InUcx& operator=(const InUcx&) = delete;
    ~InUcx();
};

// Inside an InUcx: not in UCX just now, since the thread sleeps.
class OutOfUcx {
  public:
    OutOfUcx();
    OutOfUcx(const OutOfUcx&) = delete;
    OutOfUcx& operator=(const OutOfUcx&) = delete;
    ~OutOfUcx();
};

// Inside an InUcx: lets a fork that waits go first.
void let_fork();

// Whether this process was forked from one that had started UCX, which has hooked mmap by then: the
// hooks' lock may be held in here for ever, if another thread of the parent was inside of it.
// To be called for each context that is made.
bool forked_after_ucx_started();

}  // namespace ucxstore

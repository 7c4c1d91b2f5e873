// Whether a thread of a server lives, told in shared memory. A reader sees its end at once, and not
// when it next hears from the kernel: what it reads after that could be older than what another
// server, started in its place, has acknowledged.
#pragma once

#include <pthread.h>

#include "base/handle.hpp"

namespace ucxstore::shared {

// The server's side. A robust mutex: the kernel marks it as the thread ends that holds it, however
// that ends (set_robust_list(2)). Only the thread that makes this may destroy it.
class Life {
  public:
    // Throws Error(memory).
    Life();
    Life(const Life&) = delete;
    Life& operator=(const Life&) = delete;
    ~Life();

    // For readers: they cannot write to it.
    int descriptor() const { return readable_.get(); }

  private:
    base::Fd readable_;
    pthread_mutex_t* mutex_ = nullptr;
};

// A reader's side. Any thread.
class LifeWatch {
  public:
    // Maps what a server's descriptor() is. Throws Error(protocol).
    explicit LifeWatch(const base::Fd& descriptor);
    LifeWatch(const LifeWatch&) = delete;
    LifeWatch& operator=(const LifeWatch&) = delete;
    ~LifeWatch();

    bool over() const;

  private:
    const pthread_mutex_t* mutex_ = nullptr;
};

}  // namespace ucxstore::shared

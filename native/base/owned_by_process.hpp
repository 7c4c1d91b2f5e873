// OwnedByProcess: a share in what a forked child of its process leaves alone.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace ucxstore::base {

// In a child not even the memory of the parent's UCX objects may be given back, and threads that
// the objects wait for are not there.
template <typename T>
class OwnedByProcess {
  public:
    explicit OwnedByProcess(std::shared_ptr<T> owned) : owned_(std::move(owned)) {}
    OwnedByProcess(const OwnedByProcess&) = delete;
    OwnedByProcess& operator=(const OwnedByProcess&) = delete;
    ~OwnedByProcess() {
        if (inherited()) {
            leak();
        }
    }

    // Whether this process is a child of the one that it belongs to.
    bool inherited() const { return getpid() != pid_; }
    // Keeps the share for good; it is nullptr here from now on.
    void leak() { new std::shared_ptr<T>(std::move(owned_)); }
    const std::shared_ptr<T>& get() const { return owned_; }
    T* operator->() const { return owned_.get(); }

  private:
    std::shared_ptr<T> owned_;
    const int pid_ = getpid();
};

}  // namespace ucxstore::base

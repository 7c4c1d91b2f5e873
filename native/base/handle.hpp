// Move-only owners of descriptors and UCX handles. Each has one from the line that creates it.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "base/ucx_library.hpp"

namespace ucxstore::base {

class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Fd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void reset() {
        if (fd_ >= 0) {
            ::close(release());
        }
    }

  private:
    int fd_ = -1;
};

struct ContextCleanup {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
};
struct WorkerDestroy {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
};
struct ConfigRelease {
    void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

using ContextHandle = std::unique_ptr<ucp_context, ContextCleanup>;
using WorkerHandle = std::unique_ptr<ucp_worker, WorkerDestroy>;
using ConfigHandle = std::unique_ptr<ucp_config_t, ConfigRelease>;

}  // namespace ucxstore::base

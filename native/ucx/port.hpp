// Port: a worker whose peer is still to come, as the handshake needs its address.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/owned_by_process.hpp"
#include "base/status.hpp"
#include "ucx/worker.hpp"

namespace ucxstore::ucx {

// `Owner`: the PeerThread that has made the worker.
template <typename Owner>
class Port {
  public:
    Port(std::shared_ptr<Owner> owner, std::unique_ptr<Worker> worker)
        : owner_(std::move(owner)), worker_(std::move(worker)) {}
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    ~Port() {
        if (owner_.inherited()) {
            static_cast<void>(worker_.release());  // the parent's
        } else if (worker_ != nullptr) {
            owner_->discard(std::move(worker_));
        }
    }

    // Both throw Error(argument) once the worker is taken.
    const std::string& address() const {
        base::require(worker_ != nullptr, "the port is in use");
        return worker_->address();
    }
    std::unique_ptr<Worker> take() {
        base::require(worker_ != nullptr, "the port is in use");
        return std::move(worker_);
    }
    const std::shared_ptr<Owner>& owner() const { return owner_.get(); }

  private:
    base::OwnedByProcess<Owner> owner_;
    std::unique_ptr<Worker> worker_;
};

}  // namespace ucxstore::ucx

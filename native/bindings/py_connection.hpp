// ucxstore._core.Connection: a link, and a method for each kind of request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_by_process.hpp"
#include "bindings/py_allocation.hpp"
#include "bindings/py_operation.hpp"
#include "client/requests.hpp"

namespace ucxstore::bindings {

class PyConnection {
  public:
    explicit PyConnection(std::shared_ptr<client::Link> link) : link_(std::move(link)) {}
    ~PyConnection() {
        if (!link_.inherited() && !link_->leaving()) {  // else it closes itself, once it is idle
            close();
        }
    }

    // Whether it is for new requests.
    bool alive() const { return !link_->failed() && !link_->leaving(); }
    bool leaving() const { return link_->leaving(); }
    std::string peer() const { return link_->peer(); }
    std::vector<std::string> lanes();
    bool checked() const { return link_->checked(); }
    bool encrypted() const { return link_->encrypted(); }
    void close() { link_->close(); }

    // Copies a whole value to an object's memory, if it can be seen from here: returns its size.
    // None where it cannot, where the memory is too small, or is not writable and contiguous.
    std::optional<std::uint64_t> see(const std::string& key, const nb::object& out);

    // A small value as a bytearray, if it can be seen from here; None where it cannot, or is large.
    nb::typed<nb::object, std::optional<nb::bytearray>> see_value(const std::string& key);

    // An array of a whole value where it lies, which cannot be written to, if it can be seen from
    // here; None where it cannot.
    std::optional<ReadOnlyBytes> hold(const std::string& key);
    // The same, over the file of a value, if that can be opened here; without `waits`, only where
    // that takes no wait for the disk.
    std::optional<ReadOnlyBytes> map_file(const std::string& key, bool waits);

    // Memory for a value that can go as a file; None where none can, or there is no memory: then
    // any other does.
    nb::typed<nb::object, std::optional<PyAllocation>> allocate(const std::string& key,
                                                                std::uint64_t size);
    const client::Link& link() const { return *link_.get(); }

    // Sends one request without a body, and waits for the answer.
    void ping(double timeout);

    // Submits the operation, and keeps `owners` for as long as their memory is in use.
    PyOperation::Object start(std::shared_ptr<client::Operation> operation, nb::object owners,
                              Convert convert);

  private:
    const base::OwnedByProcess<client::Link> link_;
};

void bind_connection(nb::module_& module);

}  // namespace ucxstore::bindings

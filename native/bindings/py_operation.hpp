// ucxstore._core.Operation and Completions. While an operation is in flight, a registry keeps its
// object and the owners of its memory alive, so that a caller who drops it early frees nothing that
// UCX uses. The registry is only touched with the GIL.
#pragma once

#include <functional>
#include <memory>

#include "bindings/convert.hpp"

namespace ucxstore::bindings {

// What a link copies here and now with the GIL: it takes some 10 us. To let go of the GIL may cost
// a while until it is had again.
constexpr std::uint64_t kCopiedWithGil = 64 * 1024;

// Makes Python's result of a completed operation.
using Convert = std::function<nb::object(client::Operation&)>;

class PyOperation {
  public:
    // The Python object of an operation.
    using Object = nb::typed<nb::object, PyOperation>;

    using Result = nb::typed<nb::object, nb::any>;

    // Submits the operation, and enters its object into the registry.
    static Object start(std::shared_ptr<client::Link> link,
                        std::shared_ptr<client::Operation> operation, nb::object owners,
                        Convert convert);

    bool done() const { return operation_->done(); }
    // Blocks without the GIL; a signal's exception cancels it, and is raised once it is complete.
    Result wait();
    Result result();
    void cancel();
    // Ends the operations that this thread has started without completions, and not waited for. An
    // interrupt may come in between, and once that is raised the memory is the caller's again.
    static void end_unwaited();
    // UCX is done with the memory: the owners may go.
    void retire();

  private:
    PyOperation(std::shared_ptr<client::Link> link, std::shared_ptr<client::Operation> operation,
                nb::object owners, Convert convert);
    static void sweep();
    // Cancels it, and waits until it is complete.
    void end();

    std::shared_ptr<client::Link> link_;
    std::shared_ptr<client::Operation> operation_;
    nb::object owners_;
    Convert convert_;
};

class PyCompletions {
  public:
    PyCompletions() : queue(std::make_shared<client::CompletionQueue>()) {}
    PyCompletions(const PyCompletions&) = delete;
    PyCompletions& operator=(const PyCompletions&) = delete;
    ~PyCompletions() { queue->abandon(); }
    // The operations that have completed since.
    nb::typed<nb::list, PyOperation> drain();

    const std::shared_ptr<client::CompletionQueue> queue;
};

}  // namespace ucxstore::bindings

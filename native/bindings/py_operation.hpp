// Operations and their completions, as Python objects. In flight, a registry keeps the object, and
// with it the owners of the memory, alive: whoever lets go of an operation early frees nothing
// under UCX. The registry is touched with the GIL only.
#pragma once

#include <functional>
#include <memory>

#include "bindings/convert.hpp"

namespace ucxstore::py {

// Makes Python's result of a completed operation.
using Convert = std::function<nb::object(Operation&)>;

class PyOperation {
  public:
    // The Python object of one.
    using Object = nb::typed<nb::object, PyOperation>;

    using Result = nb::typed<nb::object, nb::any>;

    // Submits it, and returns it as it is known to the registry.
    static Object start(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection,
                        std::shared_ptr<Operation> operation, nb::object owners, Convert convert);

    bool done() const { return operation_->done(); }
    // Blocks without the GIL; a signal's exception cancels it, and is raised once it is complete.
    Result wait();
    Result result();
    void cancel();
    // Ends those that this thread has started without completions and not waited for: an interrupt
    // may come in between, and its memory is the caller's as soon as that is raised.
    static void end_unwaited();
    // UCX is done with the memory: the owners may go.
    void retire();

  private:
    PyOperation(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection,
                std::shared_ptr<Operation> operation, nb::object owners, Convert convert);
    static void sweep();
    // Cancels it and sees it complete.
    void end();

    std::shared_ptr<Client> client_;
    std::shared_ptr<Connection> connection_;
    std::shared_ptr<Operation> operation_;
    nb::object owners_;
    Convert convert_;
};

class PyCompletions {
  public:
    PyCompletions() : queue(std::make_shared<CompletionQueue>()) {}
    PyCompletions(const PyCompletions&) = delete;
    PyCompletions& operator=(const PyCompletions&) = delete;
    ~PyCompletions() { queue->abandon(); }
    // The operations that have completed since.
    nb::typed<nb::list, PyOperation> drain();

    const std::shared_ptr<CompletionQueue> queue;
};

}  // namespace ucxstore::py

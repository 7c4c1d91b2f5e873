#include "bindings/py_operation.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/global.hpp"
#include "bindings/gil.hpp"
#include "client/reads_once.hpp"

namespace ucxstore::bindings {
namespace {

using namespace std::chrono_literals;

// How often a waiting main thread looks for signals (Ctrl-C).
constexpr auto kSignalPoll = 50ms;

using Registry = std::unordered_map<std::uint64_t, nb::object>;
constinit base::Global<Registry> operations;  // never destroyed: Python may be gone by then

Registry& registry() {
    return *operations.get([] { return new Registry; });
}

// Operations that this thread has started, and has still to wait for.
std::vector<std::uint64_t>& unwaited() {
    static thread_local std::vector<std::uint64_t> ids;
    return ids;
}

}  // namespace

// Operations whose event loop was closed before it saw them complete are never drained. Looked for
// now and then: whenever the registry has doubled.
void PyOperation::sweep() {
    constinit static std::size_t due = 1024;
    if (registry().size() < due) {
        return;
    }
    std::vector<nb::object> done;
    for (const auto& [id, object] : registry()) {
        const client::Operation& operation = *nb::cast<PyOperation&>(object).operation_;
        if (operation.done() && !operation.will_be_drained()) {
            done.push_back(object);
        }
    }
    for (const nb::object& object : done) {
        nb::cast<PyOperation&>(object).retire();
    }
    due = std::max<std::size_t>(1024, 2 * registry().size());
}

PyOperation::PyOperation(std::shared_ptr<client::Link> link,
                         std::shared_ptr<client::Operation> operation, nb::object owners,
                         Convert convert)
    : link_(std::move(link)),
      operation_(std::move(operation)),
      owners_(std::move(owners)),
      convert_(std::move(convert)) {}

PyOperation::Object PyOperation::start(std::shared_ptr<client::Link> link,
                                       std::shared_ptr<client::Operation> operation,
                                       nb::object owners, Convert convert) {
    nb::object object =
        nb::cast(new PyOperation(link, operation, std::move(owners), std::move(convert)),
                 nb::rv_policy::take_ownership);
    sweep();
    registry().emplace(operation->id, object);
    if (operation->for_a_thread()) {
        unwaited().push_back(operation->id);
    }
    client::tell_of_reads(link, *operation);
    try {
        if (operation->memory_bytes() >= kCopiedWithGil) {
            const WithoutGil released;
            link->submit(operation);
        } else {
            link->submit(operation);
        }
    } catch (...) {
        std::erase(unwaited(), operation->id);
        registry().erase(operation->id);
        throw;
    }
    return object;
}

PyOperation::Result PyOperation::wait() {
    std::erase(unwaited(), operation_->id);
    while (true) {
        bool done = false;
        {
            const WithoutGil released;
            done = link_->wait_for(*operation_, kSignalPoll);
        }
        if (done) {
            return result();
        }
        if (PyErr_CheckSignals() != 0) {
            nb::python_error interrupted;
            end();
            throw interrupted;
        }
    }
}

void PyOperation::end() {
    cancel();
    {
        const WithoutGil released;
        while (!operation_->wait_for(1s)) {
        }
    }
    retire();
}

void PyOperation::end_unwaited() {
    for (const std::uint64_t id : std::exchange(unwaited(), {})) {
        const auto found = registry().find(id);
        if (found != registry().end()) {
            const nb::object operation = found->second;
            nb::cast<PyOperation&>(operation).end();
        }
    }
}

PyOperation::Result PyOperation::result() {
    base::require(done(), "the operation is not done");
    retire();
    operation_->check();
    return convert_(*operation_);
}

void PyOperation::cancel() {
    const WithoutGil released;
    link_->cancel(operation_);
}

// Where UCX has kept hold of the memory, the owners may never go.
void PyOperation::retire() {
    if (!operation_->leaked()) {
        owners_.reset();
        registry().erase(operation_->id);
    }
}

nb::typed<nb::list, PyOperation> PyCompletions::drain() {
    nb::typed<nb::list, PyOperation> done;
    for (const std::uint64_t id : queue->drain()) {
        const auto found = registry().find(id);
        if (found != registry().end()) {
            const nb::object operation = found->second;
            done.append(operation);
            // Here, as a caller that was cancelled will not ask for the result.
            nb::cast<PyOperation&>(operation).retire();
        }
    }
    return done;
}

}  // namespace ucxstore::bindings

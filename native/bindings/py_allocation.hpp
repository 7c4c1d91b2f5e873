// ucxstore._core.Allocation: memory for a value that may go to a server of this host as a file.
#pragma once

#include <memory>
#include <utility>

#include "bindings/convert.hpp"
#include "bindings/gil.hpp"
#include "local_client/allocation.hpp"

namespace ucxstore::bindings {

class PyAllocation {
  public:
    explicit PyAllocation(std::shared_ptr<local_client::Allocation> memory)
        : memory_(std::move(memory)) {}
    PyAllocation(const PyAllocation&) = delete;
    PyAllocation& operator=(const PyAllocation&) = delete;
    // Arrays of it may live longer.
    ~PyAllocation() { memory_->let_go(); }

    Bytes array() const { return to_numpy(memory_); }
    void let_go() { memory_->let_go(); }
    bool seal() const {
        const WithoutGil released;
        return static_cast<bool>(memory_->seal());
    }
    void send_by(const client::Link& link, client::Operation& set) const {
        const WithoutGil released;
        memory_->send_by(link, set);
    }

  private:
    const std::shared_ptr<local_client::Allocation> memory_;
};

inline void bind_allocation(nb::module_& module) {
    nb::class_<PyAllocation>(module, "Allocation")
        .def_prop_ro("array", &PyAllocation::array, nb::rv_policy::automatic)
        .def("seal", &PyAllocation::seal,
             "End the writing to the file, which may take a while; False where that cannot be.")
        .def("let_go", &PyAllocation::let_go,
             "Give the file back; arrays keep their bytes. Also for a forked child.");
}

}  // namespace ucxstore::bindings

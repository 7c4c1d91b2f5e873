// ucxstore._core.Allocation: memory for a value that may go to a server of this host as a file.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "bindings/convert.hpp"
#include "bindings/gil.hpp"
#include "local_client/allocation.hpp"

namespace ucxstore::py {

class PyAllocation {
  public:
    explicit PyAllocation(std::shared_ptr<Allocation> memory) : memory_(std::move(memory)) {}
    PyAllocation(const PyAllocation&) = delete;
    PyAllocation& operator=(const PyAllocation&) = delete;
    // Arrays of it may live longer.
    ~PyAllocation() { memory_->let_go(); }

    Bytes array() const { return to_numpy(memory_); }
    const std::string& key() const { return memory_->key(); }
    std::uint64_t size() const { return memory_->size(); }
    void let_go() { memory_->let_go(); }
    Fd seal() const {
        const WithoutGil released;
        return memory_->seal();
    }

  private:
    const std::shared_ptr<Allocation> memory_;
};

inline void bind_allocation(nb::module_& module) {
    nb::class_<PyAllocation>(module, "Allocation")
        .def_prop_ro("array", &PyAllocation::array, nb::rv_policy::automatic)
        .def(
            "seal", [](const PyAllocation& self) { return static_cast<bool>(self.seal()); },
            "End the writing to the file, which may take a while; False where that cannot be.")
        .def("let_go", &PyAllocation::let_go,
             "Give the file back; arrays keep their bytes. Also for a forked child.");
}

}  // namespace ucxstore::py

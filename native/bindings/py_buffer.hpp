// ucxstore._core.Buffer: memory of a Python object, by the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/item_memory.hpp"

namespace ucxstore::bindings {

namespace nb = nanobind;

// Memory that can be written to as plain bytes: C-contiguous, and without references to objects.
// For as long as this lives, its object keeps it. With the GIL.
class PyBuffer {
  public:
    // nullptr where the object has no such memory.
    static std::unique_ptr<PyBuffer> of(const nb::object& object);
    PyBuffer(const PyBuffer&) = delete;
    PyBuffer& operator=(const PyBuffer&) = delete;
    ~PyBuffer() { PyBuffer_Release(&view_); }

    std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
    std::uint64_t size() const { return static_cast<std::uint64_t>(view_.len); }
    client::Memory memory() const;

  private:
    PyBuffer() = default;

    Py_buffer view_{};
};

void bind_buffer(nb::module_& module);

}  // namespace ucxstore::bindings

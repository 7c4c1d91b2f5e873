#include "bindings/py_buffer.hpp"

#include <nanobind/stl/optional.h>

#include <cstring>
#include <optional>

#include "protocol/layout.hpp"

using namespace nanobind::literals;

namespace ucxstore::bindings {

std::unique_ptr<PyBuffer> PyBuffer::of(const nb::object& object) {
    // PyBUF_ND without strides asks for C-contiguous memory.
    constexpr int kPlain = PyBUF_WRITABLE | PyBUF_ND | PyBUF_FORMAT;
    std::unique_ptr<PyBuffer> buffer(new PyBuffer);
    if (PyObject_GetBuffer(object.ptr(), &buffer->view_, kPlain) != 0) {
        PyErr_Clear();
        return nullptr;
    }
    const char* const format = buffer->view_.format;
    return format == nullptr || std::strchr(format, 'O') == nullptr ? std::move(buffer) : nullptr;
}

client::Memory PyBuffer::memory() const { return {data(), protocol::Layout::contiguous(size())}; }

void bind_buffer(nb::module_& module) {
    nb::class_<PyBuffer>(module, "Buffer", "Memory of an object, to write to as plain bytes.")
        .def_static(
            "of",
            [](const nb::object& object) -> nb::typed<nb::object, std::optional<PyBuffer>> {
                auto buffer = PyBuffer::of(object);
                return buffer == nullptr
                           ? nb::none()
                           : nb::cast(buffer.release(), nb::rv_policy::take_ownership);
            },
            "object"_a, "None if the object has no such memory.");
}

}  // namespace ucxstore::bindings

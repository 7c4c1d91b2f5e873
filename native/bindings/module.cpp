// ucxstore._core: the native core as Python sees it. No logic here, only conversion; the GIL is
// released wherever anything could wait.
#include <span>

#include "base/ucx_library.hpp"
#include "bindings/gil.hpp"
#include "bindings/py_allocation.hpp"
#include "bindings/py_buffer.hpp"
#include "bindings/py_client.hpp"
#include "bindings/py_connection.hpp"
#include "bindings/py_decoded.hpp"
#include "bindings/py_disk.hpp"
#include "bindings/py_join.hpp"
#include "bindings/py_log.hpp"
#include "bindings/py_result.hpp"
#include "bindings/py_sealing.hpp"
#include "bindings/py_server.hpp"
#include "bindings/py_source.hpp"
#include "bindings/py_storage.hpp"
#include "client/array.hpp"
#include "memory/recycler.hpp"
#include "protocol/keys.hpp"
#include "ucx/network.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

// Values of any dtype, as bytes.
using Values = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void place_values(const Values& values, const ArrayTuple& target) {
    const client::Memory memory = to_memory(target);
    const std::span source(reinterpret_cast<const std::byte*>(values.data()), values.size());
    const WithoutGil released;
    client::place(source, memory);
}

// The library that ucxstore/base/ucx_library.py chooses.
base::UcxLibrary choose_ucx() {
    base::UcxLibrary library{};
    with_gil([&] {
        const nb::object chosen = nb::module_::import_("ucxstore.base.ucx_library").attr("load")();
        library = {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(chosen.attr("handle"))),
                   nb::cast<bool>(chosen.attr("has_hooks"))};
    });
    return library;
}

const char* ucx_version() {
    base::load_ucx();
    return base::ucp_get_version_string();
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The native core of ucxstore: UCX, without the GIL.";
    // Clients and connections live in globals of ucxstore.client.runtime until the interpreter is
    // gone.
    nb::set_leak_warnings(false);
    nb::register_exception_translator(translate);
    base::set_ucx_loader(&choose_ucx);
    module.attr("PROTOCOL_VERSION") = protocol::kProtocolVersion;
    module.attr("MAX_KEY_BYTES") = protocol::kMaxKeyBytes;
    module.attr("SCRATCH_FOLDER") =
        nb::str(protocol::kScratchFolder.data(), protocol::kScratchFolder.size());
    module.attr("DECODED_FOLDER") =
        nb::str(protocol::kDecodedFolder.data(), protocol::kDecodedFolder.size());
    module.attr("MAX_RECIPE_BYTES") = protocol::kMaxRecipeBytes;
    module.def(
        "allocate", [](std::uint64_t size) { return to_numpy(memory::allocate_region(size)); },
        "size"_a, "Memory of `size` bytes, not initialised, that is recycled after use.");
    nb::class_<PyResultMemory>(module, "ResultMemory",
                               "Memory for a result, that values may be mapped into.")
        .def(nb::init<std::uint64_t>(), "size"_a)
        .def("array", [](const PyResultMemory& self) { return to_numpy(self.memory); })
        .def("be_eager", [](const PyResultMemory& self) { self.memory->eager = true; })
        .def_prop_ro("mapped", [](const PyResultMemory& self) { return self.memory->mapped(); });
    module.def("place", &place_values, "values"_a, "target"_a,
               "Copy values to their places in an array that is larger than the caches.");
    module.def("join", &join_values, "values"_a,
               "Values of whole pages that lie in shared memory or in files, mapped one after the "
               "other; None where that cannot be.");
    module.def("ucx_version", &ucx_version);
    module.def("user_at_other_end", &ucx::user_at_other_end, "fd"_a,
               "The user id of the process at the other end of a connection of this host; None "
               "where the kernel does not tell.");

    nb::class_<PyOperation>(module, "Operation")
        .def_prop_ro("done", &PyOperation::done)
        .def("wait", &PyOperation::wait)
        .def("result", &PyOperation::result)
        .def("cancel", &PyOperation::cancel)
        .def_static("end_unwaited", &PyOperation::end_unwaited);

    nb::class_<PyCompletions>(module, "Completions")
        .def(nb::init<>())
        .def("fileno", [](const PyCompletions& self) { return self.queue->fd(); })
        .def("drain", &PyCompletions::drain);

    bind_allocation(module);
    bind_buffer(module);
    bind_connection(module);
    bind_sealing(module);
    bind_client(module);
    bind_storage(module);
    bind_disk(module);
    bind_log(module);
    bind_source(module);
    bind_decoded(module);
    bind_server(module);
}

}  // namespace ucxstore::bindings

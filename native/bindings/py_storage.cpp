#include "bindings/py_storage.hpp"

#include <limits>
#include <utility>

#include "bindings/gil.hpp"
#include "storage/directory.hpp"
#include "storage/memory_settings.hpp"
#include "storage/spaces.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

using Memory = std::shared_ptr<storage::MemoryStorage>;

Memory make_memory(std::uint64_t limit, bool visible, std::uint64_t mapped_limit,
                   std::optional<std::string> hint, std::optional<std::vector<std::string>> evict,
                   std::optional<std::string> spill) {
    return Memory(new storage::MemoryStorage(storage::make_memory(
        {limit, visible, mapped_limit, std::move(hint), std::move(evict), std::move(spill)})));
}

std::shared_ptr<storage::DirectoryStorage> make_directory(const std::string& root,
                                                          const std::string& durability,
                                                          const std::string& writers) {
    return std::make_shared<storage::DirectoryStorage>(root, storage::parse_durability(durability),
                                                       files::Writers::parse(writers));
}

std::shared_ptr<storage::Spaces> make_spaces(const storage::MemoryStorage& memory, bool visible,
                                             std::optional<std::uint64_t> limit) {
    return std::make_shared<storage::Spaces>(memory, visible, limit);
}

}  // namespace

void bind_storage(nb::module_& module) {
    nb::class_<storage::Storage>(module, "Storage");
    nb::class_<storage::MemoryStorage, storage::Storage>(module, "MemoryStorage")
        .def(
            nb::new_(&make_memory), "limit"_a = std::numeric_limits<std::uint64_t>::max(),
            "visible"_a = false, "mapped_limit"_a = std::numeric_limits<std::uint64_t>::max(),
            "hint"_a.none() = nb::none(), "evict"_a.none() = nb::none(),
            "spill"_a.none() = nb::none(), nb::call_guard<WithoutGil>(),
            "Values in memory; `visible`: which other processes may be let see, and hold so many "
            "bytes of. With a `hint`, which ends the text of a refusal, `limit` is that of the "
            "memory itself, with all that values need besides. What becomes of values that have no "
            "room: those whose keys begin with one of `evict` are lost; or all go to files of the "
            "directory `spill`, which nobody else uses.")
        .def("leave", &storage::MemoryStorage::leave, nb::call_guard<WithoutGil>(),
             "Remove what was spilled; the values are used no more.")
        .def_prop_ro("held", &storage::MemoryStorage::held);
    nb::class_<storage::DirectoryStorage, storage::Storage>(module, "DirectoryStorage")
        .def(nb::new_(&make_directory), "root"_a, "durability"_a = "atomic", "writers"_a = "none",
             nb::call_guard<WithoutGil>(),
             "Values as files; `durability`: \"none\", \"atomic\" or \"fsync\"; `writers`: "
             "\"none\", \"alone\" or \"several\" servers write to the directory.")
        .def("fileno", &storage::DirectoryStorage::descriptor, "The descriptor of the directory.")
        .def("leave", &storage::DirectoryStorage::leave, nb::call_guard<WithoutGil>(),
             "Leave the directory to other servers; nothing is written any more.");

    nb::class_<storage::Spaces>(module, "Spaces")
        .def(nb::new_(&make_spaces), "memory"_a, "visible"_a = false, "limit"_a.none() = nb::none(),
             "Scratch spaces that take of the limit of this memory, and of another one of their "
             "own; `visible`: other processes may be let see each.");
}

}  // namespace ucxstore::bindings

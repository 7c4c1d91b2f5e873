#include "bindings/py_disk.hpp"

#include "bindings/gil.hpp"
#include "cache/disk.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

// The memory of a buffer of Python's, for as long as this lives.
class HeldBuffer {
  public:
    explicit HeldBuffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) {
            throw nb::python_error();
        }
    }
    HeldBuffer(const HeldBuffer&) = delete;
    HeldBuffer& operator=(const HeldBuffer&) = delete;
    ~HeldBuffer() { PyBuffer_Release(&buffer_); }

    std::span<const std::byte> bytes() const {
        return {static_cast<const std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
    }

  private:
    Py_buffer buffer_{};
};

bool write(cache::DiskCache& disk, const std::shared_ptr<cache::DiskCache::File>& file,
           nb::handle buffer) {
    const HeldBuffer held(buffer);
    const WithoutGil released;
    return disk.write(*file, held.bytes());
}

std::optional<Bytes> read(const cache::DiskCache& disk, const cache::DiskCache::Found& found) {
    std::shared_ptr<memory::Region> region;
    {
        const WithoutGil released;
        region = disk.read(found);
    }
    return region == nullptr ? std::nullopt : std::optional(to_numpy(region));
}

std::shared_ptr<cache::DiskCache> make_disk(const std::string& directory, std::uint64_t capacity) {
    return std::make_shared<cache::DiskCache>(directory, capacity);
}

}  // namespace

void bind_disk(nb::module_& module) {
    nb::class_<cache::DiskCache::File>(module, "DiskFile");
    nb::class_<cache::DiskCache::Found>(module, "DiskFound")
        .def_ro("etag", &cache::DiskCache::Found::etag);
    nb::class_<cache::DiskCache>(module, "DiskCache")
        .def(nb::new_(&make_disk), "directory"_a, "capacity"_a)
        .def("find", &cache::DiskCache::find, "key"_a)
        .def("find_part", &cache::DiskCache::find_part, "key"_a, "begin"_a, "end"_a, "etag"_a)
        .def("add", &cache::DiskCache::add, "key"_a, "begin"_a.none(), "length"_a, "etag"_a,
             nb::sig("def add(self, key: str, begin: int | None, length: int, etag: str) -> "
                     "DiskFile | None"))
        .def("forget", &cache::DiskCache::forget, "key"_a)
        .def("forget_prefix", &cache::DiskCache::forget_prefix, "prefix"_a)
        .def("write", &write, "file"_a, "buffer"_a)
        .def("read", &read, "found"_a)
        .def("sweep",
             [](cache::DiskCache& disk) {
                 const WithoutGil released;
                 disk.sweep();
             })
        .def_prop_ro("bytes", &cache::DiskCache::bytes);
}

}  // namespace ucxstore::bindings

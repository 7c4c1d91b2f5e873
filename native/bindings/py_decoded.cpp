#include "bindings/py_decoded.hpp"

#include <utility>

#include "bindings/gil.hpp"
#include "cache/decoded_values.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

// An object of Python's, which any thread may let go of.
using Held = std::shared_ptr<nb::object>;

Held hold(const nb::object& object) {
    return {new nb::object(object), [](nb::object* last) { with_gil([last] { delete last; }); }};
}

// Calls `call` under the GIL. An exception of Python's, which goes under the GIL, becomes an Error.
void in_python(const std::function<void()>& call) {
    with_gil([&] {
        try {
            call();
        } catch (const nb::python_error& error) {
            throw base::Error(base::ErrorKind::storage, error.what());
        } catch (const nb::cast_error&) {
            throw base::Error(base::ErrorKind::storage, "the decoder is none");
        }
    });
}

// The array keeps the owner of its memory.
ReadOnlyBytes to_array(const cache::StoredChunk& chunk) {
    using Owner = std::shared_ptr<const memory::Region>;
    const nb::capsule owner(new Owner(chunk.owner),
                            [](void* last) noexcept { delete static_cast<Owner*>(last); });
    return {chunk.bytes.data(), {chunk.bytes.size()}, owner};
}

class PyRecipe : public cache::Recipe {
  public:
    PyRecipe(Held decode, std::string digest, std::uint64_t bytes)
        : decode_(std::move(decode)), digest_(std::move(digest)), bytes_(bytes) {}
    const std::string& digest() const override { return digest_; }
    std::uint64_t bytes() const override { return bytes_; }
    void decode(const cache::StoredChunk& stored,
                const std::shared_ptr<memory::Region>& out) const override {
        std::string failure;
        in_python(
            [&] { failure = nb::cast<std::string>((*decode_)(to_array(stored), to_numpy(out))); });
        if (!failure.empty()) {
            throw base::Error(base::ErrorKind::storage, failure);
        }
    }

  private:
    const Held decode_;
    const std::string digest_;
    const std::uint64_t bytes_;
};

class PyDecoder : public cache::Decoder {
  public:
    explicit PyDecoder(const nb::object& prepare) : prepare_(hold(prepare)) {}
    std::shared_ptr<const cache::Recipe> prepare(const std::string& text) override {
        std::shared_ptr<const cache::Recipe> recipe;
        std::string failure;
        in_python([&] {
            const nb::object prepared = (*prepare_)(text);
            if (nb::isinstance<nb::str>(prepared)) {
                failure = nb::cast<std::string>(prepared);
                return;
            }
            recipe = std::make_shared<const PyRecipe>(
                hold(prepared.attr("decode")), nb::cast<std::string>(prepared.attr("digest")),
                nb::cast<std::uint64_t>(prepared.attr("nbytes")));
        });
        if (recipe == nullptr) {
            throw base::Error(base::ErrorKind::storage, failure);
        }
        return recipe;
    }

  private:
    const Held prepare_;
};

using Prepare = nb::typed<nb::callable, nb::any(std::string)>;

std::shared_ptr<cache::DecodedValues> make(const Prepare& prepare, std::uint64_t bytes, int threads,
                                           bool visible) {
    auto decoder = std::make_shared<PyDecoder>(prepare);
    const WithoutGil released;
    return std::make_shared<cache::DecodedValues>(std::move(decoder), bytes, threads, visible);
}

}  // namespace

void bind_decoded(nb::module_& module) {
    nb::class_<cache::DecodedValues>(module, "DecodedValues",
                                     "Values that a server decodes once for all of its readers.")
        .def(nb::new_(&make), "prepare"_a, "bytes"_a, "threads"_a, "visible"_a = false,
             "Keep so many bytes of them. `prepare` takes a recipe, and returns an object with "
             "`nbytes`, "
             "`digest` and `decode`; or why it cannot. `decode` takes what is stored "
             "and memory for the chunk, and returns why that has failed, or an empty text.")
        .def(
            "close",
            [](cache::DecodedValues& self, double timeout) {
                const WithoutGil released;
                return self.close(milliseconds(timeout));
            },
            "timeout"_a);
}

}  // namespace ucxstore::bindings

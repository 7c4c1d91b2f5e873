#include "bindings/py_sealing.hpp"

#include <cstring>
#include <string>

#include "bindings/convert.hpp"
#include "protocol/aead.hpp"

namespace ucxstore::bindings {
namespace {

using namespace nanobind::literals;

template <typename Bytes>
Bytes to_array_of(const nb::bytes& bytes, const char* what) {
    Bytes array;
    base::require(bytes.size() == array.size(), what);
    std::memcpy(array.data(), bytes.c_str(), array.size());
    return array;
}

// Frames on a stream, in their order.
class SealedStream {
  public:
    explicit SealedStream(const protocol::SessionKeys& keys) : seals_(keys) {}

    nb::bytes seal(const nb::bytes& frame) {
        std::string text = to_string(frame);
        seals_.out.seal_header(protocol::Message::request, text, 0);
        return to_bytes(text);
    }
    nb::bytes open(const nb::bytes& frame) {
        const auto opened = seals_.in.open_header(
            protocol::Message::request,
            {reinterpret_cast<const std::byte*>(frame.c_str()), frame.size()}, 0);
        if (!opened) {
            throw base::Error(base::ErrorKind::protocol, "a frame that was not sent, or not now");
        }
        return to_bytes(opened->header);
    }

  private:
    protocol::Seals seals_;
};

}  // namespace

std::optional<protocol::SessionKeys> to_keys(const KeysTuple& tuple) {
    if (!tuple) {
        return std::nullopt;
    }
    constexpr const char* kWrong = "a key that is not of 32 bytes";
    return protocol::SessionKeys{to_array_of<protocol::Aead::Key>(tuple->first, kWrong),
                                 to_array_of<protocol::Aead::Key>(tuple->second, kWrong)};
}

void bind_sealing(nb::module_& module) {
    nb::class_<protocol::Agreement>(module, "Agreement",
                                    "A pair of keys of X25519, for one agreement.")
        .def(nb::init<>())
        .def_prop_ro("public_key",
                     [](const protocol::Agreement& self) {
                         const auto& key = self.public_key();
                         return nb::bytes(key.data(), key.size());
                     })
        .def(
            "secret_with",
            [](const protocol::Agreement& self, const nb::bytes& other) {
                const auto secret = self.secret_with(to_array_of<protocol::Agreement::Bytes>(
                    other, "a public key that is not of 32 bytes"));
                return nb::bytes(secret.data(), secret.size());
            },
            "other"_a);
    nb::class_<SealedStream>(module, "SealedStream", "Encrypted frames on a stream, in order.")
        .def(
            "__init__",
            [](SealedStream* self, const nb::bytes& send, const nb::bytes& receive) {
                new (self) SealedStream(*to_keys(KeysTuple({send, receive})));
            },
            "send"_a, "receive"_a)
        .def("seal", &SealedStream::seal, "frame"_a)
        .def("open", &SealedStream::open, "frame"_a);
}

}  // namespace ucxstore::bindings

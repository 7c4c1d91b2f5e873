#include "protocol/crypto_library.hpp"

#include <dlfcn.h>

#include <string>

#include "base/global.hpp"
#include "base/status.hpp"

namespace ucxstore::protocol {
namespace {

constexpr const char* kName = "libcrypto.so.3";

template <typename Function>
void find_if_there(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
    find_if_there(library, name, function);
    if (function == nullptr) {
        throw base::Error(base::ErrorKind::connect,
                          std::string("encryption: ") + kName + " has no " + name + "()");
    }
}

CryptoLibrary load() {
    void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);  // for as long as the process lives
    if (library == nullptr) {
        throw base::Error(base::ErrorKind::connect,
                          std::string("encryption needs OpenSSL 3, and ") + kName +
                              " is not to be found; install libssl3 (Debian, Ubuntu), openssl-libs "
                              "(Fedora, RHEL) or openssl (conda-forge)");
    }
    CryptoLibrary found{};
    find(library, "EVP_CIPHER_fetch", found.cipher_fetch);
    find(library, "EVP_CIPHER_CTX_new", found.context_new);
    find(library, "EVP_CIPHER_CTX_free", found.context_free);
    find(library, "EVP_CipherInit_ex2", found.cipher_init);
    find(library, "EVP_CipherUpdate", found.cipher_update);
    find(library, "EVP_CipherFinal_ex", found.cipher_final);
    find(library, "EVP_CIPHER_CTX_ctrl", found.context_control);
    find(library, "EVP_PKEY_Q_keygen", found.key_generate);
    find(library, "EVP_PKEY_new_raw_public_key_ex", found.key_of_public);
    find(library, "EVP_PKEY_get_raw_public_key", found.public_of_key);
    find(library, "EVP_PKEY_free", found.key_free);
    find(library, "EVP_PKEY_CTX_new_from_pkey", found.key_context_new);
    find(library, "EVP_PKEY_CTX_free", found.key_context_free);
    find(library, "EVP_PKEY_derive_init", found.derive_init);
    find(library, "EVP_PKEY_derive_set_peer", found.derive_set_peer);
    find(library, "EVP_PKEY_derive", found.derive);
    find(library, "OPENSSL_cleanse", found.cleanse);
    find_if_there(library, "ERR_set_mark", found.set_error_mark);
    find_if_there(library, "ERR_pop_to_mark", found.pop_to_error_mark);
    return found;
}

constinit base::Global<CryptoLibrary> library_of_process;

}  // namespace

const CryptoLibrary& crypto() {
    return *library_of_process.get([] { return new CryptoLibrary(load()); });
}

}  // namespace ucxstore::protocol

// OpenSSL 3's libcrypto, loaded when something is to be encrypted: nothing is linked to it, and
// nothing else needs it. Its functions are declared here, as its headers declare them.
#pragma once

#include <cstddef>

namespace ucxstore::protocol {

struct CryptoLibrary {
    using Cipher = struct evp_cipher_st;
    using CipherContext = struct evp_cipher_ctx_st;
    using Key = struct evp_pkey_st;
    using KeyContext = struct evp_pkey_ctx_st;

    Cipher* (*cipher_fetch)(void* context, const char* name, const char* properties);
    CipherContext* (*context_new)();
    void (*context_free)(CipherContext*);
    int (*cipher_init)(CipherContext*, const Cipher*, const unsigned char* key,
                       const unsigned char* nonce, int seals, const void* parameters);
    int (*cipher_update)(CipherContext*, unsigned char* target, int* written,
                         const unsigned char* source, int length);
    int (*cipher_final)(CipherContext*, unsigned char* target, int* written);
    int (*context_control)(CipherContext*, int what, int number, void* pointer);

    Key* (*key_generate)(void* context, const char* properties, const char* type, ...);
    Key* (*key_of_public)(void* context, const char* type, const char* properties,
                          const unsigned char* bytes, std::size_t length);
    int (*public_of_key)(const Key*, unsigned char* target, std::size_t* length);
    void (*key_free)(Key*);
    KeyContext* (*key_context_new)(void* context, Key*, const char* properties);
    void (*key_context_free)(KeyContext*);
    int (*derive_init)(KeyContext*);
    int (*derive_set_peer)(KeyContext*, Key*);
    int (*derive)(KeyContext*, unsigned char* target, std::size_t* length);

    void (*cleanse)(void* memory, std::size_t length);

    // nullptr where the library has none, as some that take its place.
    int (*set_error_mark)();
    int (*pop_to_error_mark)();
};

// Any thread. Throws Error(connect) that says what to install, where it is not to be had.
const CryptoLibrary& crypto();

}  // namespace ucxstore::protocol

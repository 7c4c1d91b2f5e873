// AES-256-GCM (NIST SP 800-38D), by OpenSSL: seals a text that comes in any number of parts, and
// opens it again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocol/crypto_library.hpp"

namespace ucxstore::protocol {

class Aead {
  public:
    static constexpr std::size_t kKeyBytes = 32;
    static constexpr std::size_t kNonceBytes = 12;
    static constexpr std::size_t kTagBytes = 16;
    using Key = std::array<std::uint8_t, kKeyBytes>;
    using Nonce = std::array<std::uint8_t, kNonceBytes>;
    using Tag = std::array<std::uint8_t, kTagBytes>;
    enum class Way { open, seal };

    // Throws Error(connect) where OpenSSL is not to be had, or does not have the cipher.
    Aead(const Key& key, Way way);
    Aead(const Aead&) = delete;
    Aead& operator=(const Aead&) = delete;
    ~Aead();

    // Begins a text under a nonce, which no other text that is sealed with the key may have.
    // `beside` is authenticated, and no part of the text. All of these are false where OpenSSL
    // fails, which it has no reason to; the text is no good then.
    [[nodiscard]] bool begin(const Nonce& nonce, std::span<const std::byte> beside) noexcept;
    // Seals or opens the next bytes; `target` may be `source`. What is opened must not be believed
    // before end() has said so.
    [[nodiscard]] bool update(const std::byte* source, std::byte* target,
                              std::size_t length) noexcept;
    // The end of a text: makes its tag, or compares it.
    [[nodiscard]] bool end(Tag& tag) noexcept;

  private:
    const CryptoLibrary& library_;
    const bool seals_;
    CryptoLibrary::CipherContext* context_;
};

// Aeads of one key, each for one text at a time: to make one takes longer than to seal a small
// message. On one thread.
class AeadPool {
  public:
    AeadPool(const Aead::Key& key, Aead::Way way);
    AeadPool(const AeadPool&) = delete;
    AeadPool& operator=(const AeadPool&) = delete;
    ~AeadPool();

    std::unique_ptr<Aead> take();
    void give(std::unique_ptr<Aead> one) noexcept;

  private:
    Aead::Key key_;
    const Aead::Way way_;
    std::vector<std::unique_ptr<Aead>> free_;
};

// A pair of keys of X25519 (RFC 7748), for one agreement on a secret.
class Agreement {
  public:
    static constexpr std::size_t kBytes = 32;  // of a public key, and of the secret
    using Bytes = std::array<std::uint8_t, kBytes>;

    // Throws Error(connect).
    Agreement();
    Agreement(const Agreement&) = delete;
    Agreement& operator=(const Agreement&) = delete;
    ~Agreement();

    const Bytes& public_key() const { return public_; }
    // The secret that whoever has the other public key agrees on, too. Throws Error(connect) for a
    // key that tells it.
    Bytes secret_with(const Bytes& other) const;

  private:
    const CryptoLibrary& library_;
    CryptoLibrary::Key* key_;
    Bytes public_{};
};

}  // namespace ucxstore::protocol

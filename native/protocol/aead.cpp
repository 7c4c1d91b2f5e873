#include "protocol/aead.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/global.hpp"
#include "base/status.hpp"

namespace ucxstore::protocol {
namespace {

// OpenSSL's EVP_CTRL_AEAD_GET_TAG and EVP_CTRL_AEAD_SET_TAG.
constexpr int kGetTag = 0x10;
constexpr int kSetTag = 0x11;

// So many are kept: more texts are seldom under way at once.
constexpr std::size_t kMostFree = 16;

// Of one call, whose lengths are ints.
constexpr std::size_t kMostAtOnce = 1 << 30;

constexpr const char* kAgreement = "X25519";

// While it lives, what fails leaves no error in OpenSSL's queue of this thread. Others use that:
// Python's ssl would take such an error for one of its own.
class NoErrorsLeft {
  public:
    NoErrorsLeft() {
        if (crypto().set_error_mark != nullptr) {
            crypto().set_error_mark();
        }
    }
    NoErrorsLeft(const NoErrorsLeft&) = delete;
    NoErrorsLeft& operator=(const NoErrorsLeft&) = delete;
    ~NoErrorsLeft() {
        if (crypto().pop_to_error_mark != nullptr) {
            crypto().pop_to_error_mark();
        }
    }
};

constinit base::Global<const CryptoLibrary::Cipher> cipher_of_process;

const CryptoLibrary::Cipher* cipher() {
    const CryptoLibrary::Cipher* const fetched = cipher_of_process.get(
        [] { return crypto().cipher_fetch(nullptr, "AES-256-GCM", nullptr); });
    if (fetched == nullptr) {
        throw base::Error(base::ErrorKind::connect, "encryption: OpenSSL has no AES-256-GCM");
    }
    return fetched;
}

[[noreturn]] void no_agreement() {
    throw base::Error(base::ErrorKind::connect,
                      "encryption: OpenSSL could not agree on a key by X25519");
}

const unsigned char* bytes(const std::byte* from) {
    return reinterpret_cast<const unsigned char*>(from);
}

unsigned char* bytes(std::byte* from) { return reinterpret_cast<unsigned char*>(from); }

}  // namespace

Aead::Aead(const Key& key, Way way)
    : library_(crypto()), seals_(way == Way::seal), context_(nullptr) {
    const NoErrorsLeft quiet;
    const auto* const chosen = cipher();
    context_ = library_.context_new();
    if (context_ == nullptr) {
        throw std::bad_alloc();
    }
    if (library_.cipher_init(context_, chosen, key.data(), nullptr, seals_, nullptr) != 1) {
        library_.context_free(context_);
        throw base::Error(base::ErrorKind::connect, "encryption: OpenSSL did not take a key");
    }
}

Aead::~Aead() { library_.context_free(context_); }

bool Aead::begin(const Nonce& nonce, std::span<const std::byte> beside) noexcept {
    int written = 0;
    return library_.cipher_init(context_, nullptr, nullptr, nonce.data(), seals_, nullptr) == 1 &&
           (beside.empty() ||
            library_.cipher_update(context_, nullptr, &written, bytes(beside.data()),
                                   static_cast<int>(beside.size())) == 1);
}

bool Aead::update(const std::byte* source, std::byte* target, std::size_t length) noexcept {
    while (length > 0) {
        const std::size_t part = std::min(length, kMostAtOnce);
        int written = 0;
        if (library_.cipher_update(context_, bytes(target), &written, bytes(source),
                                   static_cast<int>(part)) != 1 ||
            written != static_cast<int>(part)) {
            return false;
        }
        source += part;
        target += part;
        length -= part;
    }
    return true;
}

bool Aead::end(Tag& tag) noexcept {
    const NoErrorsLeft quiet;
    unsigned char none[kTagBytes];
    int written = 0;
    if (!seals_ && library_.context_control(context_, kSetTag, kTagBytes, tag.data()) != 1) {
        return false;
    }
    return library_.cipher_final(context_, none, &written) == 1 && written == 0 &&
           (!seals_ || library_.context_control(context_, kGetTag, kTagBytes, tag.data()) == 1);
}

AeadPool::AeadPool(const Aead::Key& key, Aead::Way way) : key_(key), way_(way) {
    free_.reserve(kMostFree);
    free_.push_back(std::make_unique<Aead>(key_, way_));  // so that what is wrong shows at once
}

AeadPool::~AeadPool() { crypto().cleanse(key_.data(), key_.size()); }

std::unique_ptr<Aead> AeadPool::take() {
    if (free_.empty()) {
        return std::make_unique<Aead>(key_, way_);
    }
    auto one = std::move(free_.back());
    free_.pop_back();
    return one;
}

void AeadPool::give(std::unique_ptr<Aead> one) noexcept {
    if (free_.size() < kMostFree) {
        free_.push_back(std::move(one));
    }
}

Agreement::Agreement() : library_(crypto()), key_(nullptr) {
    const NoErrorsLeft quiet;
    key_ = library_.key_generate(nullptr, nullptr, kAgreement);
    std::size_t length = public_.size();
    if (key_ == nullptr) {
        no_agreement();
    }
    if (library_.public_of_key(key_, public_.data(), &length) != 1 || length != kBytes) {
        library_.key_free(key_);
        no_agreement();
    }
}

Agreement::~Agreement() { library_.key_free(key_); }

Agreement::Bytes Agreement::secret_with(const Bytes& other) const {
    const NoErrorsLeft quiet;
    const std::unique_ptr<CryptoLibrary::Key, decltype(library_.key_free)> theirs(
        library_.key_of_public(nullptr, kAgreement, nullptr, other.data(), other.size()),
        library_.key_free);
    const std::unique_ptr<CryptoLibrary::KeyContext, decltype(library_.key_context_free)> context(
        library_.key_context_new(nullptr, key_, nullptr), library_.key_context_free);
    Bytes secret{};
    std::size_t length = secret.size();
    // OpenSSL refuses a key by which the secret would be all zeros.
    if (theirs == nullptr || context == nullptr || library_.derive_init(context.get()) != 1 ||
        library_.derive_set_peer(context.get(), theirs.get()) != 1 ||
        library_.derive(context.get(), secret.data(), &length) != 1 || length != kBytes) {
        no_agreement();
    }
    return secret;
}

}  // namespace ucxstore::protocol

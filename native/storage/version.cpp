#include "storage/version.hpp"

#include <atomic>
#include <random>

#include "base/global.hpp"
#include "files/content_hash.hpp"

namespace ucxstore::storage {

namespace {

constinit base::Global<std::atomic<std::uint64_t>> version_of_process;

}  // namespace

std::uint64_t next_version() {
    auto& last = *version_of_process.get([] {
        std::random_device random;
        return new std::atomic(std::uint64_t{random()} << 32 | random());
    });
    std::uint64_t next = ++last;
    while (next == 0) {
        next = ++last;
    }
    return next;
}

std::uint64_t version_of(std::string_view etag, std::uint64_t size) {
    if (etag.empty()) {
        return next_version();
    }
    // FNV-1a, which is the same everywhere, with splitmix64's last steps.
    std::uint64_t hash = 0xCBF29CE484222325ull ^ size;
    for (const char byte : etag) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3ull;
    }
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
    hash ^= hash >> 31;
    return hash == 0 ? 1 : hash;
}

std::uint64_t version_of(std::string_view etag, const memory::Region& value) {
    if (!etag.empty()) {
        return version_of(etag, value.size());
    }
    const std::uint64_t hash = files::content_hash({value.data(), value.size()});
    return hash == 0 ? 1 : hash;
}

}  // namespace ucxstore::storage

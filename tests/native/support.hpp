// What the tests share: waiting without fixed sleeps, and a directory that goes away again.
#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "memory/region.hpp"
#include "rooms.hpp"

// Declared here, as GCC installs no header for it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();

namespace ucxstore::test {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kMiB = 1 << 20;

// Longer than anything takes under a sanitizer on a busy machine; only a failing test waits it out.
constexpr std::chrono::seconds kPatience{120};

template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = kPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

// The kind of the Error that `call` throws; nullopt where it throws none.
template <typename Call>
std::optional<ErrorKind> error_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.kind();
    }
    return std::nullopt;
}

inline Bytes to_bytes(const std::string& text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
}

// Bytes that tell their place and their value apart.
inline Bytes pattern(std::size_t size, unsigned seed = 0) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::byte>(i * 131 + i / 251 + seed);
    }
    return bytes;
}

// The most memory that this process has had.
inline std::uint64_t peak_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

// What is allocated now.
inline std::uint64_t heap_bytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return __sanitizer_get_current_allocated_bytes();
#else
    return mallinfo2().uordblks;
#endif
}

// What a reader gets of a value, wherever it lies.
inline Bytes content_of(const Region& region) {
    std::vector<ucp_dt_iov_t> pieces{{region.data(), region.size()}};
    const auto owner = region.pieced() ? region.locate(pieces) : nullptr;
    Bytes bytes;
    for (const ucp_dt_iov_t& piece : pieces) {
        const auto* const begin = static_cast<const std::byte*>(piece.buffer);
        bytes.insert(bytes.end(), begin, begin + piece.length);
    }
    return bytes;
}

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string name = std::filesystem::temp_directory_path() / "ucxstore-test-XXXXXX";
        if (mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot make a temporary directory");
        }
        path_ = name;
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace ucxstore::test

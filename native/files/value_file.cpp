#include "files/value_file.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>

#include "base/status.hpp"

namespace ucxstore::files {
namespace {

constexpr std::string_view kUnfinishedPrefix = ".ucxstore-";
constexpr std::string_view kUnfinishedSuffix = ".partial";
// ucxstore/server/identity.py writes it.
constexpr std::string_view kClusterName = ".ucxstore-cluster";

std::uint64_t nanoseconds(const timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

// Files are replaced, never written to. So another value has another inode, or a later time where
// the inode's number is used again.
std::uint64_t version_of(const struct stat& about) {
    std::uint64_t hash = 0;
    for (const auto number :
         {static_cast<std::uint64_t>(about.st_ino), nanoseconds(about.st_mtim),
          nanoseconds(about.st_ctim), static_cast<std::uint64_t>(about.st_size)}) {
        hash = (hash ^ number) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
    }
    return std::max<std::uint64_t>(hash, 1);
}

bool is_recent(const struct stat& about) {
    // More than a tick of any kernel. A time ahead of the clock is from another host's.
    constexpr std::int64_t kTick = 20'000'000;
    constexpr std::int64_t kSecond = 1'000'000'000;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return (now.tv_sec - about.st_ctim.tv_sec) * kSecond + now.tv_nsec - about.st_ctim.tv_nsec <
           kTick;
}

std::string unfinished_name() {
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        base::throw_errno("drawing a random name");
    }
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, number);
    return std::string(kUnfinishedPrefix) + text + std::string(kUnfinishedSuffix);
}

bool is_unfinished_name(std::string_view name) {
    constexpr std::size_t kDigits = 16;
    return name.size() == kUnfinishedPrefix.size() + kDigits + kUnfinishedSuffix.size() &&
           name.starts_with(kUnfinishedPrefix) && name.ends_with(kUnfinishedSuffix) &&
           name.substr(kUnfinishedPrefix.size(), kDigits).find_first_not_of("0123456789abcdef") ==
               std::string_view::npos;
}

bool is_our_own(std::string_view key) {
    const std::string_view name = key.substr(key.rfind('/') + 1);  // all of it where there is none
    return name.starts_with(kUnfinishedPrefix) &&
           (name.ends_with(kUnfinishedSuffix) || name == kClusterName);
}

}  // namespace ucxstore::files

#include "storage/durable_directories.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::storage {
namespace {

// Beyond so many, all are forgotten: their entries are then brought to the medium once more.
constexpr std::size_t kMostKnown = 64 * 1024;

std::string shown(const std::string& path) { return path.empty() ? "the root" : "'" + path + "'"; }

}  // namespace

void DurableDirectories::sync(std::set<std::string> paths) {
    check();
    try {
        Known found;
        // From the deepest on: each may add the one above it.
        for (auto at = paths.rbegin(); at != paths.rend(); ++at) {
            const std::string& path = *at;
            const base::Fd directory = root_.directory(path);
            if (directory && fsync(directory.get()) != 0) {
                base::throw_errno("bringing the directory " + shown(path) + " to the disk");
            }
            if (path.empty()) {
                continue;
            }
            const std::string above = files::split(path).parent;
            if (!directory) {
                paths.insert(above);
                continue;
            }
            const Identity identity = identity_of(directory, path);
            if (!knows(path, identity)) {
                paths.insert(above);
                found.emplace(path, identity);
            }
        }
        const base::Lock lock(mutex_);
        if (known_.size() > kMostKnown) {
            known_.clear();
        }
        for (auto& [path, identity] : found) {
            known_.insert_or_assign(path, identity);
        }
    } catch (const base::Error& error) {
        const base::Lock lock(mutex_);
        failure_ = error.what();
        throw;
    }
}

DurableDirectories::Identity DurableDirectories::identity_of(const base::Fd& directory,
                                                             const std::string& path) {
    struct statx about{};
    if (statx(directory.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0) {
        base::throw_errno("looking at the directory " + shown(path));
    }
    return {std::uint64_t{about.stx_dev_major} << 32 | about.stx_dev_minor, about.stx_ino,
            about.stx_btime.tv_sec, about.stx_btime.tv_nsec};
}

bool DurableDirectories::knows(const std::string& path, const Identity& identity) {
    const base::Lock lock(mutex_);
    const auto found = known_.find(path);
    return found != known_.end() && found->second == identity;
}

void DurableDirectories::check() {
    const base::Lock lock(mutex_);
    if (!failure_.empty()) {
        throw base::Error(base::ErrorKind::storage,
                          "the server no longer writes, because the disk has failed (" + failure_ +
                              "): check the disk, and restart the server");
    }
}

void sync_root(const std::string& path) {
    const auto whole = std::filesystem::absolute(path).lexically_normal();
    for (auto at = whole;; at = at.parent_path()) {
        const base::Fd directory(open(at.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        const bool synced = directory && fsync(directory.get()) == 0;
        if (!synced && at == whole) {
            base::throw_errno("durability 'fsync' for the directory " + path);
        }
        if (at == at.parent_path()) {
            return;
        }
    }
}

}  // namespace ucxstore::storage

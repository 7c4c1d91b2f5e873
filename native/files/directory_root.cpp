#include "files/directory_root.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/status.hpp"

namespace ucxstore::files {
namespace {

// A directory made for one key can be pruned for another in between.
constexpr int kMakeAttempts = 16;

// RESOLVE_CACHED, which is newer than some headers: fails with EAGAIN where the disk must be asked.
constexpr std::uint64_t kCached = 0x20;

// Whether a failure to open means that there is nothing: ENXIO is a socket, which is no file, and a
// name too long for the file system cannot have been written.
bool is_absent(int code) {
    return code == ENOENT || code == ENOTDIR || code == ENXIO || code == ENAMETOOLONG;
}

int open_beneath(int root, const char* path, int flags, std::uint64_t resolve = 0) {
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve;
    return static_cast<int>(syscall(SYS_openat2, root, path, &how, sizeof(how)));
}

// Where the kernel or its sandbox has no openat2: name by name, following no link at all.
int open_by_parts(int root, const std::string& path, int flags) {
    base::Fd at;
    std::size_t begin = 0;
    while (true) {
        const std::size_t slash = path.find('/', begin);
        const std::string part = path.substr(begin, slash - begin);
        if (part.empty() || part == "..") {
            errno = EXDEV;  // what openat2 would have said
            return -1;
        }
        const int base = at ? at.get() : root;
        if (slash == std::string::npos) {
            return openat(base, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
        }
        base::Fd next(openat(base, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next) {
            return -1;
        }
        at = std::move(next);
        begin = slash + 1;
    }
}

}  // namespace

SplitKey split(const std::string& key) {
    const std::size_t slash = key.rfind('/');
    if (slash == std::string::npos) {
        return {"", key};
    }
    return {key.substr(0, slash), key.substr(slash + 1)};
}

DirectoryRoot::DirectoryRoot(const std::string& path) {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    root_ = base::Fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root_) {
        base::throw_errno("opening the directory " + path);
    }
}

base::Fd DirectoryRoot::resolve(const std::string& path, int flags) const {
    const std::string name = path.empty() ? "." : path;
    int fd = open_beneath(root_.get(), name.c_str(), flags);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = open_by_parts(root_.get(), name, flags);
    }
    if (fd >= 0) {
        if (path.empty()) {
            check_present();  // a removed directory can still be opened, and is empty
        }
        return base::Fd(fd);
    }
    if (errno == EXDEV || errno == ELOOP) {
        throw base::Error(base::ErrorKind::storage,
                          "'" + path + "' leads out of the served directory");
    }
    const int code = errno;
    if (is_absent(code)) {
        check_present();  // or every key would pass for missing
        return base::Fd();
    }
    errno = code;
    const std::string what = "opening '" + path + "'";
    if (code == EACCES) {
        throw Forbidden(what + ": " + std::strerror(code));
    }
    base::throw_errno(what);
}

bool DirectoryRoot::is_file(const std::string& path) const {
    struct stat about{};
    const base::Fd fd = resolve(path, O_PATH);
    return fd && fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode);
}

bool DirectoryRoot::is_present() const {
    struct stat about{};
    return fstat(root_.get(), &about) != 0 || about.st_nlink > 0;
}

void DirectoryRoot::check_present() const {
    if (!is_present()) {
        throw base::Error(base::ErrorKind::storage,
                          "the served directory was removed: No such file or directory");
    }
}

bool DirectoryRoot::is_kept_by_kernel() const {
    return static_cast<bool>(base::Fd(open_beneath(root_.get(), ".", O_PATH)));
}

base::Fd DirectoryRoot::directory(const std::string& path) const {
    return resolve(path, O_RDONLY | O_DIRECTORY);
}

base::Fd DirectoryRoot::file(const std::string& key) const {
    base::Fd fd;
    try {
        // O_NONBLOCK: a FIFO under a key must not hold the thread up.
        fd = resolve(key, O_RDONLY | O_NONBLOCK);
    } catch (const Forbidden&) {
        if (is_file(key)) {
            throw;
        }
        return base::Fd();  // a directory is no key, whoever may open it
    }
    if (fd) {
        struct stat about{};
        if (fstat(fd.get(), &about) != 0) {
            base::throw_errno("looking at '" + key + "'");
        }
        if (!S_ISREG(about.st_mode)) {
            return base::Fd();
        }
    }
    return fd;
}

DirectoryRoot::Sight DirectoryRoot::look(const std::string& key, Wait wait) const noexcept {
    using What = Sight::What;
    const bool cached = wait == Wait::never;
    Sight sight;
    sight.file = base::Fd(
        open_beneath(root_.get(), key.c_str(), O_RDONLY | O_NONBLOCK, cached ? kCached : 0));
    if (!sight.file) {
        if (errno == ENOENT) {
            sight.what = is_present() ? What::nothing : What::unknown;
        } else if (cached && (errno == EAGAIN || errno == EINVAL)) {  // an older kernel
            sight.what = What::later;
        }
    } else if (fstat(sight.file.get(), &sight.about) == 0) {
        sight.what = S_ISREG(sight.about.st_mode) ? What::file : What::nothing;
    }
    return sight;
}

base::Fd DirectoryRoot::make_parents(const std::string& key) const {
    const std::string parent = split(key).parent;
    for (int attempt = 0; attempt < kMakeAttempts; ++attempt) {
        if (base::Fd found = directory(parent)) {
            return found;
        }
        std::size_t end = 0;
        while (end != std::string::npos) {
            end = parent.find('/', end + 1);
            const SplitKey names = split(parent.substr(0, end));
            const base::Fd above = directory(names.parent);
            if (!above) {
                break;
            }
            if (mkdirat(above.get(), names.leaf.c_str(), 0777) != 0 && errno != EEXIST) {
                if (errno == ENOENT) {
                    check_present();
                    break;  // pruned in between, as another key was removed
                }
                base::throw_errno("making the directory '" + parent.substr(0, end) + "'");
            }
        }
    }
    throw base::Error(base::ErrorKind::storage,
                      "'" + parent + "' is not a directory, so it cannot hold '" + key + "'");
}

void DirectoryRoot::prune_parents(const std::string& key) const try {
    std::string path = split(key).parent;
    while (!path.empty()) {
        const SplitKey names = split(path);
        const base::Fd above = directory(names.parent);
        if (above && unlinkat(above.get(), names.leaf.c_str(), AT_REMOVEDIR) != 0 &&
            !is_absent(errno)) {
            return;  // not empty, or not ours to remove
        }
        path = names.parent;
    }
} catch (const std::exception&) {  // destructors call this, and empty directories do no harm
}

}  // namespace ucxstore::files

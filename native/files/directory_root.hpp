// A directory that keys cannot leave: every path is resolved beneath it, symbolic links included.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "base/handle.hpp"
#include "base/status.hpp"

namespace ucxstore::files {

// A directory that is being listed.
struct DirClose {
    void operator()(DIR* directory) const { closedir(directory); }
};
using DirHandle = std::unique_ptr<DIR, DirClose>;

// There is something, which the user of this process may not open.
class Forbidden : public base::Error {
  public:
    explicit Forbidden(const std::string& message)
        : base::Error(base::ErrorKind::storage, message) {}
};

class DirectoryRoot {
  public:
    // Makes the directory where there is none. Throws Error(storage).
    explicit DirectoryRoot(const std::string& path);
    // Takes over the descriptor() of another process.
    explicit DirectoryRoot(base::Fd root) : root_(std::move(root)) {}

    // For processes that have our rights: whoever has it can open what is beneath it and above it.
    int descriptor() const { return root_.get(); }
    // Whether it is the kernel that keeps keys beneath the root, in this process: then others that
    // ask it find the same.
    bool is_kept_by_kernel() const;

    // The directory that `path` ("" for the root) names; an empty Fd where there is none. Throws
    // Forbidden.
    base::Fd directory(const std::string& path) const;
    // The regular file under `key`, for reading; an empty Fd where there is none. Throws Forbidden.
    base::Fd file(const std::string& key) const;
    // The same, for a process that the descriptor was passed to.
    enum class Wait { for_disk, never };
    struct Sight {
        enum class What {
            file,
            nothing,
            unknown,  // this process may see less than the one that has opened the root
            later,    // what would have to wait for the disk, and was not to
        };
        What what = What::unknown;
        base::Fd file = {};
        struct stat about{};
    };
    Sight look(const std::string& key, Wait wait) const noexcept;
    // Whether the root directory is still there.
    bool is_present() const;
    // The directory that `key` lies in, made where it is missing.
    base::Fd make_parents(const std::string& key) const;
    // Removes the directories above `key` that are empty now, as far as it can. Never throws.
    void prune_parents(const std::string& key) const;

  private:
    // Opens `path`; an empty Fd where nothing is there. Throws Forbidden, and Error(storage) for
    // all else.
    base::Fd resolve(const std::string& path, int flags) const;
    // Whether what `path` names is a regular file, which need not be opened for that.
    bool is_file(const std::string& path) const;
    // Throws Error(storage) where the root directory is gone.
    void check_present() const;

    base::Fd root_;
};

// "a/b/c" -> "a/b" and "c".
struct SplitKey {
    std::string parent;
    std::string leaf;
};
SplitKey split(const std::string& key);

}  // namespace ucxstore::files

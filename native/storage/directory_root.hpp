// A directory that keys cannot leave: every path is resolved beneath it, symbolic links included.
#pragma once

#include <string>

#include "base/handle.hpp"

namespace ucxstore {

class DirectoryRoot {
  public:
    // Makes the directory where there is none. Throws Error(storage).
    explicit DirectoryRoot(const std::string& path);

    // The directory that `path` ("" for the root) names; an empty Fd where there is none.
    Fd directory(const std::string& path) const;
    // The regular file under `key`, for reading; an empty Fd where there is none.
    Fd file(const std::string& key) const;
    // The directory that `key` lies in, made where it is missing.
    Fd make_parents(const std::string& key) const;
    // Removes the directories above `key` that are empty now, as far as it can. Never throws.
    void prune_parents(const std::string& key) const;

  private:
    // Opens `path`; an empty Fd where nothing is there. Throws Error(storage) for all else.
    Fd resolve(const std::string& path, int flags) const;
    // Throws Error(storage) where the root directory is gone.
    void check_present() const;

    Fd root_;
};

// "a/b/c" -> "a/b" and "c".
struct SplitKey {
    std::string parent;
    std::string leaf;
};
SplitKey split(const std::string& key);

}  // namespace ucxstore

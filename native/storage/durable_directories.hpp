// The directories of a storage: which entries are known to be on the medium, and how the others get
// there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/mutex.hpp"
#include "files/directory_root.hpp"

namespace ucxstore::storage {

// Called from any thread.
class DurableDirectories {
  public:
    // `root` must outlive it.
    explicit DurableDirectories(const files::DirectoryRoot& root) : root_(root) {}
    DurableDirectories(const DurableDirectories&) = delete;
    DurableDirectories& operator=(const DurableDirectories&) = delete;

    // Brings the entries of these directories to the medium, and those that lead to them from the
    // root. A directory that was removed meanwhile stands for the one that it was in. Throws
    // Error(storage), and from then on always: nobody knows any more what the medium has.
    void sync(std::set<std::string> paths);

  private:
    // Another directory of the same name is another one.
    struct Identity {
        std::uint64_t device;
        std::uint64_t inode;
        std::int64_t born_s;
        std::uint32_t born_ns;
        bool operator==(const Identity&) const = default;
    };
    using Known = std::map<std::string, Identity>;

    static Identity identity_of(const base::Fd& directory, const std::string& path);
    bool knows(const std::string& path, const Identity& identity);
    void check();

    const files::DirectoryRoot& root_;
    base::Mutex mutex_;
    Known known_ GUARDED_BY(mutex_);  // whose entry in the directory above is on the medium
    std::string failure_ GUARDED_BY(mutex_);
};

// Brings a directory that a storage is to be in to the medium, with those above it that this
// process may open. Throws Error(storage) where its file system cannot do that for directories.
void sync_root(const std::string& path);

}  // namespace ucxstore::storage

#include "storage/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "files/directory_root.hpp"
#include "files/value_file.hpp"
#include "protocol/keys.hpp"
#include "storage/durable_directories.hpp"
#include "storage/file.hpp"
#include "storage/file_region.hpp"

namespace ucxstore::storage {
namespace {

struct DirectoryEntry {
    // In the order of whole keys a directory sorts as its name with "/" after it.
    std::string order;

    bool is_directory() const { return order.ends_with('/'); }
    std::string name() const { return order.substr(0, order.size() - (is_directory() ? 1 : 0)); }
    // The memory that it takes, about.
    std::size_t bytes() const { return sizeof(DirectoryEntry) + order.capacity(); }
};

// The memory for the entries of a directory, however deep it lies: half of all is for the directory
// where a walk begins, half of the rest for one in there, and so on.
constexpr std::size_t kLeastBytes = 16 << 10;

// Names that are read between two steps.
constexpr std::size_t kStepNames = 512;

// The file of a key; an empty Fd where it has none.
base::Fd open_value(const files::DirectoryRoot& root, const std::string& key) {
    return files::is_our_own(key) ? base::Fd() : root.file(key);
}

// The entry, if it is a key or the beginning of keys. nullopt for a name that no key has, and for a
// file that a get would refuse.
std::optional<DirectoryEntry> classify(const files::DirectoryRoot& root, int directory,
                                       const std::string& base, const dirent& found) {
    std::string name = found.d_name;
    if (name == "." || name == ".." || files::is_our_own(name) || protocol::key_fault(name)) {
        return std::nullopt;
    }
    if (found.d_type == DT_REG || found.d_type == DT_DIR) {
        return DirectoryEntry{found.d_type == DT_DIR ? name + "/" : std::move(name)};
    }
    // A link is a key where it leads to a file; links to directories are not walked (cycles).
    struct stat about{};
    if (fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
        return std::nullopt;
    }
    if (S_ISDIR(about.st_mode)) {
        return DirectoryEntry{name + "/"};
    }
    if (S_ISLNK(about.st_mode)) {
        try {
            return root.file(base + name) ? std::optional(DirectoryEntry{std::move(name)})
                                          : std::nullopt;
        } catch (const base::Error&) {
            return std::nullopt;  // it leads out of the root
        }
    }
    return S_ISREG(about.st_mode) ? std::optional(DirectoryEntry{std::move(name)}) : std::nullopt;
}

// Whether the walk must look at `path`, which ends in "/" for a directory: it begins with the
// prefix or may hold keys that do, and not all of it is before the cursor.
bool concerns(const std::string& path, const std::string& prefix, const std::string& cursor) {
    const std::size_t common = std::min(path.size(), prefix.size());
    if (path.compare(0, common, prefix, 0, common) != 0) {
        return false;
    }
    if (path.ends_with('/')) {
        return path >= cursor || cursor.starts_with(path);
    }
    return path.size() >= prefix.size() && path >= cursor;
}

// What a walk looks for.
struct Scope {
    const files::DirectoryRoot& root;
    const std::string& prefix;
    const std::string& cursor;
    const Pace& pace;
};

// The entries of a directory that concern a walk, in the order of whole keys; none where it is
// missing, or where it may not be opened. Only as many are kept as there is memory for. Once these
// are through, the directory is read again, for those that come behind them.
class Entries {
  public:
    Entries(const Scope& scope, std::string path, std::size_t most_bytes)
        : scope_(scope),
          path_(std::move(path)),
          base_(path_.empty() ? "" : path_ + "/"),
          most_bytes_(std::max(most_bytes, kLeastBytes)) {}

    // nullptr after the last.
    const DirectoryEntry* next() {
        if (next_ == kept_.size() && std::exchange(more_, false)) {
            read();
            next_ = 0;
        }
        return next_ == kept_.size() ? nullptr : &kept_[next_++];
    }
    // Whether entries are missing, as the directory may not be opened. After the last.
    bool is_unreadable() const { return unreadable_; }

  private:
    void read();
    void keep(DirectoryEntry entry);

    const Scope& scope_;
    const std::string path_;
    const std::string base_;
    const std::size_t most_bytes_;
    std::vector<DirectoryEntry> kept_;  // a heap while it is read: the last one comes first
    std::size_t bytes_ = 0;             // of these
    std::size_t next_ = 0;
    std::string last_;  // of those that are through
    bool more_ = true;
    bool unreadable_ = false;
};

void Entries::read() {
    if (!kept_.empty()) {
        last_ = kept_.back().order;
    }
    kept_.clear();
    bytes_ = 0;
    if (scope_.pace) {
        scope_.pace();
    }
    base::Fd fd;
    try {
        fd = scope_.root.directory(path_);
    } catch (const files::Forbidden&) {
        if (path_.empty()) {
            throw;  // nothing at all can be listed
        }
        unreadable_ = true;
        return;
    }
    if (!fd) {
        return;
    }
    base::Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    const files::DirHandle directory(copy ? fdopendir(copy.get()) : nullptr);
    if (directory == nullptr) {
        base::throw_errno("listing '" + path_ + "'");
    }
    copy.release();  // the DIR closes it
    for (std::size_t names = 1;; ++names) {
        errno = 0;
        const dirent* one = readdir(directory.get());
        if (one == nullptr) {
            break;
        }
        if (auto entry = classify(scope_.root, fd.get(), base_, *one)) {
            keep(std::move(*entry));
        }
        if (scope_.pace && names % kStepNames == 0) {
            scope_.pace();
        }
    }
    if (errno != 0) {
        base::throw_errno("listing '" + path_ + "'");
    }
    std::ranges::sort_heap(kept_, {}, &DirectoryEntry::order);
}

void Entries::keep(DirectoryEntry entry) {
    if (entry.order <= last_ || (more_ && entry.order > kept_.front().order) ||
        !concerns(base_ + entry.order, scope_.prefix, scope_.cursor)) {
        return;
    }
    bytes_ += entry.bytes();
    kept_.push_back(std::move(entry));
    std::ranges::push_heap(kept_, {}, &DirectoryEntry::order);
    while (bytes_ > most_bytes_ && kept_.size() > 1) {
        std::ranges::pop_heap(kept_, {}, &DirectoryEntry::order);
        bytes_ -= kept_.back().bytes();
        kept_.pop_back();
        more_ = true;
    }
}

// A page that is being filled, with `max_bytes` of names at most.
class Filling {
  public:
    Filling(Page& page, std::size_t max_bytes) : page_(page), left_(max_bytes) {}

    // Both take a name, unless the page is full: then the next one begins at `cursor`.
    bool add(const std::string& name, const std::string& cursor) {
        return add(page_.names, name, cursor);
    }
    bool add_unreadable(const std::string& directory) {
        return add(page_.unreadable, directory, directory + "/");
    }

  private:
    bool add(std::vector<std::string>& names, const std::string& name, const std::string& cursor) {
        const std::size_t bytes = name.size() + 2;
        if (bytes > left_ && !(page_.names.empty() && page_.unreadable.empty())) {
            page_.cursor = cursor;
            return false;
        }
        left_ -= std::min(left_, bytes);
        names.push_back(name);
        return true;
    }

    Page& page_;
    std::size_t left_;
};

// Fills a page with the key of every file, in key order; false once it is full. `bytes`: the memory
// that it may take.
bool walk(const Scope& scope, const std::string& directory, std::size_t bytes, Filling& page) {
    const std::string base = directory.empty() ? "" : directory + "/";
    Entries entries(scope, directory, bytes / 2);
    while (const DirectoryEntry* entry = entries.next()) {
        const std::string path = base + entry->name();
        if (entry->is_directory() ? !walk(scope, path, bytes / 2, page) : !page.add(path, path)) {
            return false;
        }
    }
    return !entries.is_unreadable() || page.add_unreadable(directory);
}

// The directory that every key with this prefix lies in.
std::string directory_of(const std::string& prefix) {
    const std::size_t slash = prefix.rfind('/');
    return slash == std::string::npos ? "" : prefix.substr(0, slash);
}

}  // namespace

DirectoryStorage::DirectoryStorage(const std::string& root, Durability durability,
                                   files::Writers::Mode writers, std::size_t listing_bytes)
    : root_(root),
      writers_(root, writers),
      listing_bytes_(listing_bytes),
      committer_(root_, durability, writers_.several()),
      sweep_(root_) {
    if (durability == Durability::fsync) {
        sync_root(root);
    }
    if (writers != files::Writers::Mode::none) {
        sweep_.start();
    }
}

std::shared_ptr<const memory::Region> DirectoryStorage::find(const std::string& key) {
    base::Fd file = open_value(root_, key);
    return file ? read_file(std::move(file), key) : nullptr;
}

std::optional<std::uint64_t> DirectoryStorage::size(const std::string& key) {
    const base::Fd file = open_value(root_, key);
    if (!file) {
        return std::nullopt;
    }
    struct stat about{};
    if (fstat(file.get(), &about) != 0) {
        base::throw_errno("looking at '" + key + "'");
    }
    return static_cast<std::uint64_t>(about.st_size);
}

std::unique_ptr<Incoming> DirectoryStorage::receive(const std::string& key, std::uint64_t size) {
    if (files::is_our_own(key)) {
        throw base::Error(base::ErrorKind::storage,
                          "'" + key + "' is the name of a file of the server's own");
    }
    return receive_file({root_, writers_, reclaimer_, committer_}, key, size);
}

void DirectoryStorage::removed(const std::vector<std::string>& keys) {
    std::set<std::string> changed;
    for (const std::string& key : keys) {
        changed.insert(files::split(key).parent);
    }
    committer_.removed_from(std::move(changed));
}

bool DirectoryStorage::removing_waits() const {
    return committer_.durability() == Durability::fsync || writers_.several();
}

void DirectoryStorage::remove(const std::string& key, const Consent& consent) {
    if (files::is_our_own(key)) {
        return;  // no key
    }
    const auto [folder, leaf] = files::split(key);
    const base::Fd parent = root_.directory(folder);
    struct stat about{};
    if (!parent || (fstatat(parent.get(), leaf.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                    !S_ISREG(about.st_mode) && !S_ISLNK(about.st_mode))) {
        return;  // a directory, a socket or the like is no key
    }
    const auto lock = writers_.lock(key, parent, base::Clock::now() + files::Writers::kPatience);
    const auto held = consent ? consent(writers_.several()) : std::unique_lock<base::Mutex>();
    base::Fd removed = threads::open_to_reclaim(parent, leaf);
    if (unlinkat(parent.get(), leaf.c_str(), 0) != 0) {
        if (errno == ENOENT || errno == ENAMETOOLONG) {
            return;
        }
        base::throw_errno("deleting '" + key + "'");
    }
    reclaimer_.reclaim(std::move(removed));
    root_.prune_parents(key);
}

Page DirectoryStorage::list(const std::string& prefix, bool delimited, const std::string& cursor,
                            std::size_t max_bytes, const Pace& pace) {
    Page page;
    Filling filling(page, max_bytes);
    const std::string directory = directory_of(prefix);
    if (!delimited) {
        walk({root_, prefix, cursor, pace}, directory, listing_bytes_, filling);
        return page;
    }
    const std::string from = cursor.empty() ? cursor : prefix + cursor;
    const Scope scope{root_, prefix, from, pace};
    Entries entries(scope, directory, listing_bytes_);
    while (const DirectoryEntry* entry = entries.next()) {
        if (!filling.add(entry->name(), entry->order)) {
            return page;
        }
    }
    if (entries.is_unreadable()) {
        filling.add_unreadable(directory);
    }
    return page;
}

}  // namespace ucxstore::storage

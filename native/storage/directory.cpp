#include "storage/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/status.hpp"
#include "files/value_file.hpp"
#include "protocol/keys.hpp"
#include "storage/file.hpp"

namespace ucxstore {
namespace {

struct Entry {
    std::string name;
    bool is_directory;
    // In the order of whole keys a directory sorts as its name with "/" after it.
    std::string order() const { return is_directory ? name + "/" : name; }
};

struct DirClose {
    void operator()(DIR* directory) const { closedir(directory); }
};

// The file of a key; an empty Fd where it has none.
Fd open_value(const DirectoryRoot& root, const std::string& key) {
    return is_unfinished(key) ? Fd() : root.file(key);
}

// The entry, if it is a key or the beginning of keys. nullopt for a name that no key has, and for a
// file that a get would refuse.
std::optional<Entry> classify(const DirectoryRoot& root, int directory, const std::string& base,
                              const dirent& found) {
    std::string name = found.d_name;
    if (name == "." || name == ".." || is_unfinished(name) || wire::key_fault(name)) {
        return std::nullopt;
    }
    if (found.d_type == DT_REG || found.d_type == DT_DIR) {
        return Entry{std::move(name), found.d_type == DT_DIR};
    }
    // A link is a key where it leads to a file; links to directories are not walked (cycles).
    struct stat about{};
    if (fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
        return std::nullopt;
    }
    if (S_ISDIR(about.st_mode)) {
        return Entry{std::move(name), true};
    }
    if (S_ISLNK(about.st_mode)) {
        try {
            return root.file(base + name) ? std::optional(Entry{std::move(name), false})
                                          : std::nullopt;
        } catch (const Error&) {
            return std::nullopt;  // it leads out of the root
        }
    }
    return S_ISREG(about.st_mode) ? std::optional(Entry{std::move(name), false}) : std::nullopt;
}

// The entries of the directory, in the order of whole keys; none where it is missing.
std::vector<Entry> entries(const DirectoryRoot& root, const std::string& path) {
    Fd fd = root.directory(path);
    if (!fd) {
        return {};
    }
    Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    const std::unique_ptr<DIR, DirClose> directory(copy ? fdopendir(copy.get()) : nullptr);
    if (directory == nullptr) {
        throw_errno("listing '" + path + "'");
    }
    copy.release();  // the DIR closes it
    const std::string base = path.empty() ? "" : path + "/";
    std::vector<Entry> found;
    while (true) {
        errno = 0;
        const dirent* one = readdir(directory.get());
        if (one == nullptr) {
            break;
        }
        if (auto entry = classify(root, fd.get(), base, *one)) {
            found.push_back(std::move(*entry));
        }
    }
    if (errno != 0) {
        throw_errno("listing '" + path + "'");
    }
    std::ranges::sort(found, {}, &Entry::order);
    return found;
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

// Calls visit(key) for every file, in key order, until it returns false.
bool walk(const DirectoryRoot& root, const std::string& directory, const std::string& prefix,
          const std::string& cursor, const std::function<bool(const std::string&)>& visit) {
    const std::string base = directory.empty() ? "" : directory + "/";
    for (const Entry& entry : entries(root, directory)) {
        const std::string path = base + entry.name;
        if (!concerns(base + entry.order(), prefix, cursor)) {
            continue;
        }
        if (entry.is_directory ? !walk(root, path, prefix, cursor, visit) : !visit(path)) {
            return false;
        }
    }
    return true;
}

// The directory that every key with this prefix lies in.
std::string directory_of(const std::string& prefix) {
    const std::size_t slash = prefix.rfind('/');
    return slash == std::string::npos ? "" : prefix.substr(0, slash);
}

// Adds a name, unless the page is full: then sets where the next page begins.
bool add_to_page(Page& page, std::size_t& bytes, std::size_t max_bytes, const std::string& name,
                 const std::string& cursor) {
    bytes += name.size() + 2;
    if (bytes > max_bytes && !page.names.empty()) {
        page.cursor = cursor;
        return false;
    }
    page.names.push_back(name);
    return true;
}

}  // namespace

std::shared_ptr<const Region> DirectoryStorage::find(const std::string& key) {
    const Fd file = open_value(root_, key);
    return file ? map_file(file, key) : nullptr;
}

std::optional<std::uint64_t> DirectoryStorage::size(const std::string& key) {
    const Fd file = open_value(root_, key);
    if (!file) {
        return std::nullopt;
    }
    struct stat about{};
    if (fstat(file.get(), &about) != 0) {
        throw_errno("looking at '" + key + "'");
    }
    return static_cast<std::uint64_t>(about.st_size);
}

std::unique_ptr<Incoming> DirectoryStorage::receive(const std::string& key, std::uint64_t size) {
    return receive_file(root_, reclaimer_, key, size);
}

void DirectoryStorage::remove(const std::string& key) {
    const auto [folder, leaf] = split(key);
    const Fd parent = root_.directory(folder);
    struct stat about{};
    if (!parent || (fstatat(parent.get(), leaf.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                    !S_ISREG(about.st_mode) && !S_ISLNK(about.st_mode))) {
        return;  // a directory, a socket or the like is no key
    }
    Fd removed = open_to_reclaim(parent, leaf);
    if (unlinkat(parent.get(), leaf.c_str(), 0) != 0) {
        if (errno == ENOENT || errno == ENAMETOOLONG) {
            return;
        }
        throw_errno("deleting '" + key + "'");
    }
    reclaimer_.reclaim(std::move(removed));
    root_.prune_parents(key);
}

std::uint64_t DirectoryStorage::remove_prefix(const std::string& prefix) {
    std::vector<std::string> keys;
    walk(root_, directory_of(prefix), prefix, "", [&](const std::string& key) {
        keys.push_back(key);
        return true;
    });
    for (const std::string& key : keys) {
        remove(key);
    }
    return keys.size();
}

Measure DirectoryStorage::measure(const std::string& prefix, bool any) {
    Measure sum;
    walk(root_, directory_of(prefix), prefix, "", [&](const std::string& key) {
        if (const auto bytes = size(key)) {
            ++sum.keys;
            sum.bytes += *bytes;
        }
        return !any || sum.keys == 0;
    });
    return sum;
}

Page DirectoryStorage::list(const std::string& prefix, bool delimited, const std::string& cursor,
                            std::size_t max_bytes) {
    Page page;
    std::size_t bytes = 0;
    if (!delimited) {
        walk(root_, directory_of(prefix), prefix, cursor,
             [&](const std::string& key) { return add_to_page(page, bytes, max_bytes, key, key); });
        return page;
    }
    for (const Entry& entry : entries(root_, directory_of(prefix))) {
        const std::string order = entry.order();
        if (order >= cursor && !add_to_page(page, bytes, max_bytes, entry.name, order)) {
            break;
        }
    }
    return page;
}

}  // namespace ucxstore

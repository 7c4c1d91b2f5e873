#include "files/writers.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/inherited.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "files/content_hash.hpp"

namespace ucxstore::files {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLockFile = ".ucxstore/lock";

// How long a thread sleeps before it tries a lock again, which others have mostly for microseconds.
constexpr base::Clock::duration kFirstNap = 50us;
constexpr base::Clock::duration kLongestNap = 20ms;

// What of the directory's inode, or of the lock file, a server has locked. Keys come behind that.
constexpr off_t kAlone = 0;
constexpr off_t kSeveral = 1;
constexpr off_t kKeys = 2;

// File systems of one host. Its kernel knows all who lock an inode there. It would also lock a
// directory of NFS or the like, and other hosts would not know.
bool is_of_this_host(int fd) {
    constexpr unsigned long kXfs = 0x58465342;
    constexpr unsigned long kZfs = 0x2FC12FC1;
    constexpr unsigned long kBcachefs = 0xCA451A4E;
    struct statfs about{};
    if (fstatfs(fd, &about) != 0) {
        return false;
    }
    switch (static_cast<unsigned long>(about.f_type)) {
        case EXT4_SUPER_MAGIC:
        case BTRFS_SUPER_MAGIC:
        case F2FS_SUPER_MAGIC:
        case OVERLAYFS_SUPER_MAGIC:
        case TMPFS_MAGIC:
        case kXfs:
        case kZfs:
        case kBcachefs:
            return true;
        default:
            return false;
    }
}

struct flock range(short type, off_t begin, off_t length) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = begin;
    lock.l_len = length;
    return lock;
}

bool take(int fd, short type, off_t begin, off_t length) {
    struct flock lock = range(type, begin, length);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Whether others have locked any of it.
bool is_taken(int fd, off_t begin, off_t length) {
    struct flock lock = range(F_WRLCK, begin, length);
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0) {
        base::throw_errno("asking who serves the directory");
    }
    return lock.l_type != F_UNLCK;
}

bool is_busy() { return errno == EAGAIN || errno == EACCES || errno == EINTR; }

// Tries until it succeeds; false where it is busy at the end.
template <typename Try>
bool wait_for(base::TimePoint until, Try attempt) {
    for (auto nap = kFirstNap; !attempt(); nap = std::min(2 * nap, kLongestNap)) {
        const base::TimePoint now = base::Clock::now();
        if (now >= until) {
            return false;
        }
        std::this_thread::sleep_for(std::min(nap, until - now));
    }
    return true;
}

[[noreturn]] void throw_served(const std::string& path) {
    throw base::Error(base::ErrorKind::storage,
                      path +
                          ": another server writes to this directory: end that one, or start all "
                          "servers of it with shared (--shared)");
}

base::Fd open_or_throw(const std::string& path, int flags) {
    base::Fd fd(open(path.c_str(), flags | O_CLOEXEC, 0666));
    if (!fd) {
        base::throw_errno("opening " + path);
    }
    return fd;
}

}  // namespace

Writers::Mode Writers::parse(std::string_view text) {
    if (text == "none") {
        return Mode::none;
    }
    if (text == "alone") {
        return Mode::alone;
    }
    if (text == "several") {
        return Mode::several;
    }
    throw base::Error(base::ErrorKind::argument, "no writers: '" + std::string(text) + "'");
}

Writers::Writers(const std::string& path, Mode mode, base::Clock::duration patience) : mode_(mode) {
    if (mode == Mode::none) {
        return;
    }
    const base::TimePoint until = base::Clock::now() + patience;
    claim_ = open_or_throw(path, O_RDONLY | O_DIRECTORY);
    if (is_of_this_host(claim_.get())) {
        claim_directory(path, until);
    } else {
        claim_file(path, until);
    }
    // A forked child would keep the claim beyond our end.
    base::enlist_for_children(claim_.get());
}

Writers::~Writers() { give_up_claim(); }

void Writers::give_up_claim() {
    if (claim_) {
        base::strike_off_for_children(claim_.get());
        take(claim_.get(), F_UNLCK, kAlone, kKeys);  // children may have the descriptor
        claim_ = base::Fd();
    }
}

void Writers::leave(base::Clock::duration patience) {
    const base::TimePoint until = base::Clock::now() + patience;
    std::vector<std::unique_lock<base::TimedMutex>> all;
    all.reserve(here_.size());
    for (base::TimedMutex& one : here_) {
        all.emplace_back(one, until);
        if (!all.back()) {
            return;
        }
    }
    left_ = true;
    give_up_claim();
}

// A directory can only be opened for reading, and so takes no lock that excludes all others. One
// byte is locked by a server that wants to be alone, another one by those that do not, and nobody
// looks and locks at the same time as another one.
void Writers::claim_directory(const std::string& path, base::TimePoint until) {
    const int fd = claim_.get();
    const auto attempt = [&] {
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK || errno == EINTR) {
                return false;
            }
            base::throw_errno("locking " + path);
        }
        const bool free = !is_taken(fd, kAlone, several() ? 1 : kKeys);
        const bool taken = free && take(fd, F_RDLCK, several() ? kSeveral : kAlone, 1);
        flock(fd, LOCK_UN);
        return taken;
    };
    if (!wait_for(until, attempt)) {
        throw_served(path);
    }
}

void Writers::claim_file(const std::string& path, base::TimePoint until) {
    const std::string folder = path + "/" + kOwnFolder;
    const std::string file = path + "/" + kLockFile;
    if (mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) {
        file_ = base::Fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    }
    if (!file_ && !several() && (errno == EROFS || errno == EACCES || errno == EPERM)) {
        return;  // where we cannot write, we undo nothing
    }
    if (!file_) {
        base::throw_errno("opening " + file + ", which servers of a directory lock");
    }
    claim_ = open_or_throw(file, O_RDWR);
    const auto attempt = [&] {
        if (take(claim_.get(), several() ? F_RDLCK : F_WRLCK, kAlone, 1)) {
            return true;
        }
        if (!is_busy()) {
            base::throw_errno("locking " + file);
        }
        return false;
    };
    if (!wait_for(until, attempt)) {
        throw_served(path);
    }
}

Writers::Lock::~Lock() {
    if (there_) {
        // Not only closed: a child that was forked meanwhile may have the descriptor, too.
        flock(there_.get(), LOCK_UN);
        take(there_.get(), F_UNLCK, 0, 0);
    }
}

Writers::Lock Writers::lock(const std::string& key, const base::Fd& parent,
                            base::TimePoint until) const {
    const std::size_t hash = content_hash(std::as_bytes(std::span(key)));
    Lock lock;
    lock.here_ = std::unique_lock(here_[hash % here_.size()], std::defer_lock);
    const auto throw_held = [&](const char* who) {
        throw base::Error(base::ErrorKind::storage,
                          "'" + key + "' was not changed: " + who +
                              " has been changing it, or what is beside it, for " +
                              std::to_string(kPatience.count()) + " s");
    };
    if (!lock.here_.try_lock() && !lock.here_.try_lock_until(until)) {
        throw_held("another request");
    }
    if (left_) {
        throw base::Error(base::ErrorKind::storage,
                          "'" + key + "' was not changed: the server has ended");
    }
    if (!several()) {
        return lock;
    }
    // A description of its own: locks of one description do not exclude one another.
    const std::string file = "/proc/self/fd/" + std::to_string(file_.get());
    base::Fd there(file_ ? open(file.c_str(), O_RDWR | O_CLOEXEC)
                         : openat(parent.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!there) {
        base::throw_errno("locking '" + key + "'");
    }
    const off_t place = kKeys + static_cast<off_t>(hash >> 2);
    const auto attempt = [&] {
        if (file_ ? take(there.get(), F_WRLCK, place, 1)
                  : flock(there.get(), LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (!is_busy()) {
            base::throw_errno("locking '" + key + "'");
        }
        return false;
    };
    if (!wait_for(until, attempt)) {
        throw_held("another server");
    }
    lock.there_ = std::move(there);
    return lock;
}

bool lock_unfinished(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0; }

}  // namespace ucxstore::files

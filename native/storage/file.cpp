#include "storage/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/status.hpp"
#include "files/value_file.hpp"
#include "storage/file_writer.hpp"

namespace ucxstore::storage {
namespace {

// Values from this size on are refused before they are sent if they have no room.
constexpr std::uint64_t kLarge = 2 << 20;

// How often a directory is made again that a removal of another key has pruned since it was opened.
// 8 times was not always enough for four threads that wrote and removed.
constexpr int kAttempts = 64;

// What has waited for the disk for long still waits so long for others that change its key.
constexpr std::chrono::milliseconds kLeastWait{200};

class FileIncoming : public Incoming, private Committer::Change {
  public:
    // Delegates, so that the destructor tidies up after a constructor that throws as well.
    FileIncoming(const Files& files, const std::string& key, std::uint64_t size)
        : FileIncoming(Members(), files, key, size) {
        open();
        check_room();
    }
    FileIncoming(const FileIncoming&) = delete;
    FileIncoming& operator=(const FileIncoming&) = delete;
    ~FileIncoming() override {
        if (!name_.empty()) {
            unlinkat(directory_.get(), name_.c_str(), 0);
        }
        if (!committed_) {
            root_.prune_parents(key_);
        }
    }

    void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
        writer_.write(offset, bytes);
    }

    bool commit(bool if_absent) override {
        if_absent_ = if_absent;
        until_ = base::Clock::now() + files::Writers::kPatience;
        failure_ = writer_.finish();
        committer_.make(*this);
        return written_;
    }

    bool waits() const override { return waits_for_disk() || writers_.several(); }

    void commit_later(bool if_absent, Wanted wanted, Done done, base::MandateRef mandate) override {
        if_absent_ = if_absent;
        wanted_ = std::move(wanted);
        mandate_ = std::move(mandate);
        until_ = base::Clock::now() + files::Writers::kPatience;
        failure_ = writer_.finish();  // here, where its buffer is in the caches
        committer_.add(
            *this,
            [this, done = std::move(done)](std::string failure) {
                done(written_, std::move(failure));
            },
            base::whose_of(mandate_));
    }

  private:
    bool waits_for_disk() const { return committer_.durability() != Durability::none; }
    std::uint64_t bytes() const override { return size_; }
    std::string directory() const override { return files::split(key_).parent; }

    void start() noexcept override {
        if (failure_ == 0 && waits_for_disk() && size_ > 0 &&
            sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE) != 0 && errno == EIO) {
            failure_ = EIO;
        }
    }

    void flush() override {
        errno = failure_;
        if (errno == 0) {
            close_copy();
        }
        if (errno == 0 && waits_for_disk()) {
            errno = fdatasync(file_.get()) == 0 ? 0 : errno;
        }
        if (errno != 0) {
            base::throw_errno("writing '" + key_ + "' (" + std::to_string(size_) + " bytes)");
        }
    }

    void name() override {
        stamp();
        // The directory may have been pruned since it was opened. Then it is made again.
        for (int attempt = 0;; ++attempt) {
            try {
                // Nobody else changes the key from here on. If its client has given this up, a
                // later change may have been made before; else this one comes after it.
                const auto lock = writers_.lock(key_, directory_,
                                                std::max(until_, base::Clock::now() + kLeastWait));
                if (wanted_ && !wanted_(writers_.several())) {
                    throw base::Error(base::ErrorKind::storage,
                                      "'" + key_ + "' was given up by its client");
                }
                base::check(mandate_);
                committed_ = true;
                written_ = link(if_absent_);
                return;
            } catch (const base::Error&) {
                committed_ = false;
                struct stat about{};
                if (attempt == kAttempts || fstat(directory_.get(), &about) != 0 ||
                    about.st_nlink != 0 || !name_.empty()) {
                    throw;
                }
                directory_ = root_.make_parents(key_);
            }
        }
    }

    struct Members {};
    FileIncoming(Members, const Files& files, const std::string& key, std::uint64_t size)
        : root_(files.root),
          writers_(files.writers),
          reclaimer_(files.reclaimer),
          committer_(files.committer),
          key_(key),
          size_(size),
          writer_(file_, size, files.reclaimer) {}

    void open() {
        for (int attempt = 0; !file_; ++attempt) {
            directory_ = root_.make_parents(key_);
            open_in_directory();
            if (!file_ && (errno != ENOENT || attempt == kAttempts)) {
                base::throw_errno("making a file for '" + key_ + "'");
            }
        }
    }

    // Leaves `file_` empty, and errno set, where it fails.
    void open_in_directory() {
        // Without a name nothing stays behind, even where this process is killed.
        file_ = base::Fd(openat(directory_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
        if (file_) {
            return;
        }
        name_ = files::unfinished_name();  // a file system that has no O_TMPFILE
        file_ = base::Fd(
            openat(directory_.get(), name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
        if (!file_) {
            name_.clear();
        } else if (!is_ours()) {
            file_ = base::Fd();
            name_.clear();
            errno = ENOENT;
        }
    }

    // Whether the file was not swept away between its beginning and its lock. Without locks it is
    // never swept away.
    bool is_ours() const {
        struct stat about{};
        return (files::lock_unfinished(file_.get()) || errno != EWOULDBLOCK) &&
               fstat(file_.get(), &about) == 0 && about.st_nlink > 0;
    }

    // Refuses a large value that cannot fit before it is sent. Others that are on their way are not
    // counted: what has no room then fails as it is written.
    void check_room() {
        if (size_ < kLarge || has_room()) {
            return;
        }
        reclaimer_.wait();
        if (!has_room()) {
            errno = ENOSPC;
            base::throw_errno("room for '" + key_ + "' (" + std::to_string(size_) + " bytes)");
        }
    }

    bool has_room() const {
        struct statvfs about{};
        // A file system that cannot tell has no blocks at all.
        return fstatvfs(file_.get(), &about) != 0 || about.f_blocks == 0 ||
               size_ / about.f_frsize <= about.f_bfree;
    }

    // A file system on the network may take bytes that it then has no room for, and say so only
    // when a descriptor is closed: any of the file's. Leaves errno 0 where all is well.
    void close_copy() {
        const int copy = fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
        if (copy >= 0 && ::close(copy) == 0) {
            errno = 0;
        }
    }

    // By the clock, and not by the kernel's own: that stands still for some milliseconds, in which
    // an inode's number may be used again for a value as long as this one.
    void stamp() {
        timespec times[2];
        clock_gettime(CLOCK_REALTIME, &times[1]);
        times[0] = times[1];
        futimens(file_.get(), times);  // where that is refused, the kernel's must do
    }

    void name_file() {
        const std::string self = "/proc/self/fd/" + std::to_string(file_.get());
        const std::string name = files::unfinished_name();
        files::lock_unfinished(file_.get());
        if (linkat(AT_FDCWD, self.c_str(), directory_.get(), name.c_str(), AT_SYMLINK_FOLLOW) !=
            0) {
            base::throw_errno("naming the file for '" + key_ + "'");
        }
        name_ = name;
    }

    bool link(bool if_absent) {
        const std::string leaf = files::split(key_).leaf;
        if (name_.empty()) {
            const std::string self = "/proc/self/fd/" + std::to_string(file_.get());
            if (linkat(AT_FDCWD, self.c_str(), directory_.get(), leaf.c_str(), AT_SYMLINK_FOLLOW) ==
                0) {
                return true;
            }
            if (errno != EEXIST) {
                base::throw_errno("writing '" + key_ + "'");
            }
            if (if_absent) {
                return false;
            }
            name_file();
        } else if (if_absent) {
            if (linkat(directory_.get(), name_.c_str(), directory_.get(), leaf.c_str(), 0) == 0) {
                return true;
            }
            if (errno == EEXIST) {
                return false;
            }
            base::throw_errno("writing '" + key_ + "'");
        }
        base::Fd replaced = threads::open_to_reclaim(directory_, leaf);
        if (renameat(directory_.get(), name_.c_str(), directory_.get(), leaf.c_str()) != 0) {
            base::throw_errno("writing '" + key_ + "'");
        }
        name_.clear();
        reclaimer_.reclaim(std::move(replaced));
        return true;
    }

    const files::DirectoryRoot& root_;
    const files::Writers& writers_;
    threads::Reclaimer& reclaimer_;
    Committer& committer_;
    const std::string key_;
    const std::uint64_t size_;
    base::Fd directory_;
    base::Fd file_;
    FileWriter writer_;
    std::string name_;  // the unfinished file's, while it has one
    int failure_ = 0;   // an errno
    Wanted wanted_;
    base::MandateRef mandate_;
    base::TimePoint until_{};  // it waits for changes by others
    bool if_absent_ = false;
    bool committed_ = false;
    bool written_ = false;
};

}  // namespace

std::unique_ptr<Incoming> receive_file(const Files& files, const std::string& key,
                                       std::uint64_t size) {
    return std::make_unique<FileIncoming>(files, key, size);
}

}  // namespace ucxstore::storage

#include "storage/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/status.hpp"
#include "files/value_file.hpp"
#include "storage/file_writer.hpp"

namespace ucxstore {
namespace {

// Below this, read() costs less than a mapping, its page faults and its undoing.
constexpr std::uint64_t kMapAbove = 32 * 1024;

// Values from this size on are refused before they are sent if they have no room.
constexpr std::uint64_t kLarge = 2 << 20;

// How often a directory is made again that a removal of another key has pruned since it was opened.
// 8 times was not always enough for four threads that wrote and removed.
constexpr int kAttempts = 64;

class FileMapping : public Region {
  public:
    FileMapping(const Fd& file, std::uint64_t size, const std::string& key) : size_(size) {
        void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
        if (data == MAP_FAILED) {
            throw_errno("mapping '" + key + "'");
        }
        data_ = static_cast<std::byte*>(data);
    }
    FileMapping(const FileMapping&) = delete;
    FileMapping& operator=(const FileMapping&) = delete;
    ~FileMapping() override { munmap(data_, size_); }
    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }

  private:
    std::byte* data_;
    std::uint64_t size_;
};

class FileIncoming : public Incoming {
  public:
    // Delegates, so that the destructor tidies up after a constructor that throws as well.
    FileIncoming(const DirectoryRoot& root, Reclaimer& reclaimer, const std::string& key,
                 std::uint64_t size)
        : FileIncoming(Members(), root, reclaimer, key, size) {
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
        finish();
        stamp();
        // The directory may have been pruned since it was opened. Then it is made again.
        for (int attempt = 0;; ++attempt) {
            try {
                committed_ = true;
                return link(if_absent);
            } catch (const Error&) {
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

  private:
    struct Members {};
    FileIncoming(Members, const DirectoryRoot& root, Reclaimer& reclaimer, const std::string& key,
                 std::uint64_t size)
        : root_(root),
          reclaimer_(reclaimer),
          key_(key),
          size_(size),
          writer_(file_, size, reclaimer) {}

    void open() {
        for (int attempt = 0; !file_; ++attempt) {
            directory_ = root_.make_parents(key_);
            open_in_directory();
            if (!file_ && (errno != ENOENT || attempt == kAttempts)) {
                throw_errno("making a file for '" + key_ + "'");
            }
        }
    }

    // Leaves `file_` empty, and errno set, where it fails.
    void open_in_directory() {
        // Without a name nothing stays behind, even where this process is killed.
        file_ = Fd(openat(directory_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
        if (file_) {
            return;
        }
        name_ = unfinished_name();  // a file system that has no O_TMPFILE
        file_ = Fd(
            openat(directory_.get(), name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
        if (!file_) {
            name_.clear();
        }
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
            throw_errno("room for '" + key_ + "' (" + std::to_string(size_) + " bytes)");
        }
    }

    bool has_room() const {
        struct statvfs about{};
        // A file system that cannot tell has no blocks at all.
        return fstatvfs(file_.get(), &about) != 0 || about.f_blocks == 0 ||
               size_ / about.f_frsize <= about.f_bfree;
    }

    // A file system on the network may take bytes that it then has no room for, and say so only
    // when a descriptor is closed: any of the file's.
    void finish() {
        errno = writer_.finish();
        if (errno == 0) {
            const int copy = fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
            if (copy >= 0 && ::close(copy) == 0) {
                return;
            }
        }
        throw_errno("writing '" + key_ + "' (" + std::to_string(size_) + " bytes)");
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
        const std::string name = unfinished_name();
        if (linkat(AT_FDCWD, self.c_str(), directory_.get(), name.c_str(), AT_SYMLINK_FOLLOW) !=
            0) {
            throw_errno("naming the file for '" + key_ + "'");
        }
        name_ = name;
    }

    bool link(bool if_absent) {
        const std::string leaf = split(key_).leaf;
        if (name_.empty()) {
            const std::string self = "/proc/self/fd/" + std::to_string(file_.get());
            if (linkat(AT_FDCWD, self.c_str(), directory_.get(), leaf.c_str(), AT_SYMLINK_FOLLOW) ==
                0) {
                return true;
            }
            if (errno != EEXIST) {
                throw_errno("writing '" + key_ + "'");
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
            throw_errno("writing '" + key_ + "'");
        }
        Fd replaced = open_to_reclaim(directory_, leaf);
        if (renameat(directory_.get(), name_.c_str(), directory_.get(), leaf.c_str()) != 0) {
            throw_errno("writing '" + key_ + "'");
        }
        name_.clear();
        reclaimer_.reclaim(std::move(replaced));
        return true;
    }

    const DirectoryRoot& root_;
    Reclaimer& reclaimer_;
    const std::string key_;
    const std::uint64_t size_;
    Fd directory_;
    Fd file_;
    FileWriter writer_;
    std::string name_;  // the unfinished file's, while it has one
    bool committed_ = false;
};

}  // namespace

std::shared_ptr<const Region> map_file(const Fd& file, const std::string& key) {
    struct stat about{};
    if (fstat(file.get(), &about) != 0) {
        throw_errno("looking at '" + key + "'");
    }
    const auto size = static_cast<std::uint64_t>(about.st_size);
    if (size >= kMapAbove) {
        auto mapping = std::make_shared<FileMapping>(file, size, key);
        mapping->set_version(version_of(about));
        return mapping;
    }
    auto region = allocate_region(size);
    region->set_version(version_of(about));
    std::uint64_t filled = 0;
    while (filled < size) {
        const ssize_t got =
            pread(file.get(), region->data() + filled, size - filled, static_cast<off_t>(filled));
        if (got <= 0) {
            if (got < 0 && errno == EINTR) {
                continue;
            }
            throw Error(ErrorKind::storage, "'" + key + "' was cut short while it was read");
        }
        filled += static_cast<std::uint64_t>(got);
    }
    return region;
}

std::unique_ptr<Incoming> receive_file(const DirectoryRoot& root, Reclaimer& reclaimer,
                                       const std::string& key, std::uint64_t size) {
    return std::make_unique<FileIncoming>(root, reclaimer, key, size);
}

}  // namespace ucxstore

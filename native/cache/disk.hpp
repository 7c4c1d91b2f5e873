// Values in files, up to a number of bytes: a second tier, behind the cache in memory, and with its
// choice of what stays. Which file holds what is known in memory alone, so that no file is read but
// one that this process has written whole; files of an earlier process are removed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.hpp"

namespace ucxstore {

class DiskCache {
  public:
    class File;
    // What is wanted, of one value, from the files that hold it.
    struct Found {
        struct Piece {
            std::shared_ptr<const File> file;
            std::uint64_t begin;
            std::uint64_t length;
        };
        std::string etag;
        std::vector<Piece> pieces;
    };

    // In a directory that is there, and that nobody else uses. Throws Error(storage).
    DiskCache(const std::string& directory, std::uint64_t capacity);
    DiskCache(const DiskCache&) = delete;
    DiskCache& operator=(const DiskCache&) = delete;
    ~DiskCache();

    std::optional<Found> find(const std::string& key);
    // Bytes of the value that has this entity tag.
    std::optional<Found> find_part(const std::string& key, std::uint64_t begin, std::uint64_t end,
                                   const std::string& etag);
    // A file for a value, or for its bytes from `begin` on. nullptr where there is one, or no room.
    // Nobody finds it before it is written.
    std::shared_ptr<File> add(const std::string& key, std::optional<std::uint64_t> begin,
                              std::uint64_t length, const std::string& etag);
    void forget(const std::string& key);
    void forget_prefix(const std::string& prefix);

    // These three wait for the disk.
    // False where it is full, or fails.
    bool write(File& file, std::span<const std::byte> bytes);
    // nullptr where it fails, or somebody has changed a file.
    std::shared_ptr<Region> read(const Found& found) const;
    // Removes the files of what was forgotten or evicted, which write() does, too.
    void sweep();

    std::uint64_t bytes();

  private:
    struct Folder;

    const std::shared_ptr<Folder> folder_;
    std::mutex mutex_;
    Cache cache_;
};

// It is removed some time after its last holder has let go of it.
class DiskCache::File : public Region {
  public:
    File(std::shared_ptr<Folder> folder, std::uint64_t length, std::string etag);
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() override;

    std::byte* data() const override { return nullptr; }
    // What it takes on the disk.
    std::uint64_t size() const override;

    std::uint64_t length() const { return length_; }
    const std::string& etag() const { return etag_; }
    bool written() const { return written_; }

  private:
    friend class DiskCache;

    const std::shared_ptr<Folder> folder_;
    const std::uint64_t length_;
    const std::string etag_;
    const std::uint64_t number_;
    std::atomic<bool> written_ = false;
};

}  // namespace ucxstore

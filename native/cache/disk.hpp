// A disk cache: values in files, up to a number of bytes, as a second tier behind the cache in
// memory, and with the same eviction. Only memory knows which file holds which value. So a process
// reads only files that it has written whole itself; files of an earlier process are removed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "cache/cache.hpp"

namespace ucxstore::cache {

class DiskCache : public std::enable_shared_from_this<DiskCache> {
  public:
    class File;
    // The files that hold the wanted bytes of a value.
    struct Found {
        struct Piece {
            std::shared_ptr<const File> file;
            std::uint64_t begin;
            std::uint64_t length;
        };
        std::string etag;
        std::vector<Piece> pieces;
    };

    // `directory` exists, and nobody else uses it. Throws Error(storage).
    DiskCache(const std::string& directory, std::uint64_t capacity);
    DiskCache(const DiskCache&) = delete;
    DiskCache& operator=(const DiskCache&) = delete;
    ~DiskCache();

    std::optional<Found> find(const std::string& key);
    // Bytes of the value that has this entity tag.
    std::optional<Found> find_part(const std::string& key, std::uint64_t begin, std::uint64_t end,
                                   const std::string& etag);
    // A new file for a value, or for its bytes from `begin` on. nullptr where there is such a file
    // already, or no room for it. It is found only once it is written.
    std::shared_ptr<File> add(const std::string& key, std::optional<std::uint64_t> begin,
                              std::uint64_t length, const std::string& etag);
    void forget(const std::string& key);
    void forget_prefix(const std::string& prefix);

    // These three wait for the disk. write() returns false where the disk is full or fails.
    bool write(File& file, std::span<const std::byte> bytes);
    // nullptr where the disk fails, or somebody has changed a file.
    std::shared_ptr<memory::Region> read(const Found& found) const;
    // Removes the files of values that were forgotten or evicted. write() does that, too.
    void sweep();

    std::uint64_t bytes();

  private:
    struct Folder;

    const std::shared_ptr<Folder> folder_;
    base::Mutex mutex_;
    Cache cache_ GUARDED_BY(mutex_);
};

// A file of the cache. It is removed by a sweep() after its last holder has let go of it.
class DiskCache::File : public memory::Sized {
  public:
    File(std::shared_ptr<Folder> folder, std::uint64_t length, std::string etag);
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() override;

    // The bytes that it takes on the disk.
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

}  // namespace ucxstore::cache

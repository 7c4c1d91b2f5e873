#include "cache/disk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/mutex.hpp"
#include "cache/run_names.hpp"
#include "files/own_files.hpp"

namespace ucxstore::cache {
namespace {

constexpr const char* kSuffix = ".ucxstore-cached";

// The smallest unit in which a file system gives space.
constexpr std::uint64_t kDiskBlock = 4096;

// Whether all of it was moved; `move` is one call of the system, which may move less.
template <typename Move>
bool move_all(std::uint64_t length, Move move) {
    std::uint64_t done = 0;
    while (done < length) {
        const ssize_t moved = move(done, length - done);
        if (moved == 0 || (moved < 0 && errno != EINTR)) {
            return false;
        }
        done += moved < 0 ? 0 : static_cast<std::uint64_t>(moved);
    }
    return true;
}

}  // namespace

// The directory, and the files in it that are to be removed. Removing waits for the disk, and the
// last holder of a file may let go of it on any thread.
struct DiskCache::Folder {
    explicit Folder(const std::string& directory) : files(directory, kSuffix) {}

    files::OwnFiles files;
    base::Mutex mutex;
    std::vector<std::uint64_t> dropped GUARDED_BY(mutex);

    void sweep() {
        std::vector<std::uint64_t> numbers;
        {
            const base::Lock lock(mutex);
            numbers.swap(dropped);
        }
        for (const std::uint64_t number : numbers) {
            files.remove(number);
        }
    }
};

DiskCache::File::File(std::shared_ptr<Folder> folder, std::uint64_t length, std::string etag)
    : folder_(std::move(folder)),
      length_(length),
      etag_(std::move(etag)),
      number_(folder_->files.new_number()) {}

DiskCache::File::~File() {
    const base::Lock lock(folder_->mutex);
    folder_->dropped.push_back(number_);
}

std::uint64_t DiskCache::File::size() const {
    return (length_ + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

DiskCache::DiskCache(const std::string& directory, std::uint64_t capacity)
    : folder_(std::make_shared<Folder>(directory)),
      cache_(capacity, Cache::Clock::now, "the directory") {}

DiskCache::~DiskCache() {
    cache_.clear();
    folder_->sweep();
}

std::optional<DiskCache::Found> DiskCache::find(const std::string& key) {
    const base::Lock lock(mutex_);
    const auto file = std::static_pointer_cast<const File>(cache_.find(key));
    if (file == nullptr || !file->written()) {
        return std::nullopt;
    }
    return Found{file->etag(), {{file, 0, file->length()}}};
}

std::optional<DiskCache::Found> DiskCache::find_part(const std::string& key, std::uint64_t begin,
                                                     std::uint64_t end, const std::string& etag) {
    const base::Lock lock(mutex_);
    const auto holds = [&](const std::shared_ptr<const File>& file) {
        return file != nullptr && file->written() && file->etag() == etag;
    };
    const auto whole = std::static_pointer_cast<const File>(cache_.find(key));
    if (holds(whole) && end <= whole->length()) {
        return Found{etag, {{whole, begin, end - begin}}};
    }
    const std::string names = runs_of(key);
    Found found{etag, {}};
    while (begin < end) {
        const auto [name, value] = cache_.find_last(run_name(key, begin));
        const auto file = std::static_pointer_cast<const File>(value);
        if (!name.starts_with(names) || !holds(file)) {
            return std::nullopt;
        }
        const std::uint64_t first = number_in(name, names);
        if (begin - first >= file->length()) {
            return std::nullopt;
        }
        const std::uint64_t length = std::min(end, first + file->length()) - begin;
        found.pieces.push_back({file, begin - first, length});
        begin += length;
    }
    return found;
}

std::shared_ptr<DiskCache::File> DiskCache::add(const std::string& key,
                                                std::optional<std::uint64_t> begin,
                                                std::uint64_t length, const std::string& etag) {
    const std::string name = begin ? run_name(key, *begin) : key;
    const base::Lock lock(mutex_);
    const auto there = std::static_pointer_cast<const File>(cache_.find(name));
    if (there != nullptr && there->etag() == etag && there->length() == length) {
        return nullptr;
    }
    auto file = std::make_shared<File>(folder_, length, etag);
    cache_.put(name, file);
    return cache_.find(name) == file ? file : nullptr;
}

void DiskCache::forget(const std::string& key) {
    const base::Lock lock(mutex_);
    cache_.remove(key);
    cache_.remove_prefix(runs_of(key));
}

void DiskCache::forget_prefix(const std::string& prefix) {
    const base::Lock lock(mutex_);
    cache_.remove_prefix(prefix);
}

bool DiskCache::write(File& file, std::span<const std::byte> bytes) {
    sweep();  // first, so that there is room for it
    const base::Fd fd = folder_->files.create(file.number_);
    file.written_ = fd && bytes.size() == file.length() &&
                    move_all(bytes.size(), [&](std::uint64_t done, std::uint64_t left) {
                        return ::write(fd.get(), bytes.data() + done, left);
                    });
    return file.written_;
}

std::shared_ptr<memory::Region> DiskCache::read(const Found& found) const {
    std::uint64_t size = 0;
    for (const Found::Piece& piece : found.pieces) {
        size += piece.length;
    }
    auto region = memory::allocate_region(size, memory::Kept::for_long);
    std::byte* target = region->data();
    for (const Found::Piece& piece : found.pieces) {
        const base::Fd fd = folder_->files.open(piece.file->number_);
        const auto move = [&](std::uint64_t done, std::uint64_t left) {
            return pread(fd.get(), target + done, left, static_cast<off_t>(piece.begin + done));
        };
        if (!fd || !move_all(piece.length, move)) {
            return nullptr;
        }
        target += piece.length;
    }
    return region;
}

void DiskCache::sweep() { folder_->sweep(); }

std::uint64_t DiskCache::bytes() {
    const base::Lock lock(mutex_);
    return cache_.bytes();
}

}  // namespace ucxstore::cache

#include "storage/file_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace ucxstore::storage {
namespace {

// A huge page: the largest folio that the page cache has, and no more than a core's own cache
// holds, so that the bytes are still in there when they are written.
constexpr std::uint64_t kBufferBytes = 2 << 20;

// Of all values that are on their way. Values come one after another from each client. What has no
// buffer is written as it comes.
constexpr int kMostBuffers = 8;

std::atomic<int> buffers = 0;

}  // namespace

struct FileWriter::Buffer {
    explicit Buffer(std::uint64_t size) : region(memory::allocate_region(size)) { ++buffers; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { --buffers; }

    const std::shared_ptr<memory::Region> region;
};

void FileWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (buffered_ > 0 && offset != begin_ + buffered_) {
        flush();  // UCX may use several lanes, and then the order is theirs
    }
    while (!bytes.empty()) {
        if (buffered_ == 0) {
            begin_ = offset;
            if (bytes.size() >= buffer_end() - begin_ || !take_buffer()) {
                return put(offset, bytes);
            }
        }
        const std::uint64_t length = std::min(bytes.size(), buffer_end() - offset);
        std::memcpy(buffer_->region->data() + buffered_, bytes.data(), length);
        buffered_ += length;
        offset += length;
        bytes = bytes.subspan(length);
        if (offset == buffer_end()) {
            flush();
        }
    }
}

int FileWriter::finish() noexcept {
    flush();
    return failure_;
}

bool FileWriter::take_buffer() noexcept {
    if (buffer_ == nullptr && failure_ == 0 && buffers < kMostBuffers) {
        try {
            buffer_ = std::make_shared<Buffer>(std::min(size_, kBufferBytes));
        } catch (const std::exception&) {  // no memory
        }
    }
    return buffer_ != nullptr;
}

std::uint64_t FileWriter::buffer_end() const {
    return std::min((begin_ / kBufferBytes + 1) * kBufferBytes, size_);
}

void FileWriter::flush() noexcept {
    if (buffered_ > 0) {
        put(begin_, {buffer_->region->data(), buffered_});
        if (failure_ != 0 || begin_ + buffered_ == size_) {
            buffer_.reset();
        }
        buffered_ = 0;
    }
}

void FileWriter::put(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    bool waited = false;
    while (!bytes.empty() && failure_ == 0) {
        const ssize_t written =
            pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0) {
            const int error = errno;
            if ((error == ENOSPC || error == EDQUOT) && !std::exchange(waited, true)) {
                reclaimer_.wait();
            } else if (error != EINTR) {
                failure_ = error;
            }
            continue;
        }
        offset += static_cast<std::uint64_t>(written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

}  // namespace ucxstore::storage

#include "local_client/file_reader.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ucxstore::local_client {
namespace {

// Of a buffer for what goes to many places: a small part of a core's own cache.
constexpr std::uint64_t kBufferBytes = 64 << 10;
// Into pieces of this size at least the kernel copies as fast as we do.
constexpr std::uint64_t kStraightBytes = 16 << 10;
// To read so many bytes that nobody wants costs as much as another call.
constexpr std::uint64_t kGapBytes = 4 << 10;
// Past the caches, the end of a copy waits for memory.
constexpr std::uint64_t kLeastPastCaches = 256;

constexpr std::size_t kPiecesOfCall = 64;
constexpr std::uint64_t kMostListed = 4096;  // runs at once
constexpr std::uint64_t kFewRuns = 4096;

// Layouts count from an address. Offsets in the file are told from one that is never read.
std::byte* origin() { return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 48); }

std::uint64_t offset_of(const ucp_dt_iov_t& run) {
    return static_cast<std::uint64_t>(static_cast<std::byte*>(run.buffer) - origin());
}

}  // namespace

FileReader::FileReader(const base::Fd& file, const protocol::Selected& wanted,
                       const client::Item& item, memory::Write how, Wait wait)
    : file_(file.get()),
      wanted_(wanted),
      item_(item),
      how_(how),
      wait_(wait),
      straight_(!item.memory ||
                item.memory->shortest_run() >= std::min(kStraightBytes, item.memory->size())),
      new_pages_(item.memory && how == memory::Write::past_caches ? item.memory->end() : nullptr) {}

bool FileReader::suits(const protocol::Selected& wanted) {
    const protocol::Layout& layout = wanted.layout;
    if (wanted.several || layout.run_count() <= kFewRuns) {
        return true;
    }
    auto extent = static_cast<std::int64_t>(layout.run());
    for (auto dim = layout.dims().rbegin(); dim != layout.dims().rend(); ++dim) {
        if (dim->stride < extent) {
            return false;
        }
        extent = dim->stride * static_cast<std::int64_t>(dim->count);
    }
    return std::ranges::is_sorted(layout.offsets());
}

FileReader::Outcome FileReader::read(std::uint64_t begin, std::uint64_t length) {
    outcome_ = Outcome::read;
    if (length > 0) {
        if (wanted_.several) {
            read_spans(begin, length);
        } else if (wanted_.layout.run_count() > 1) {
            read_runs(begin, length);
        } else {
            read_run(static_cast<std::uint64_t>(wanted_.layout.offset()) + begin, begin, length);
        }
    }
    return outcome_;
}

bool FileReader::read_spans(std::uint64_t begin, std::uint64_t length) {
    std::uint64_t at = 0;
    for (const protocol::Span& span : wanted_.spans) {
        const std::uint64_t first = std::max(at, begin);
        const std::uint64_t end = std::min(at + span.length, begin + length);
        if (first < end && !read_run(span.begin + (first - at), first, end - first)) {
            return false;
        }
        at += span.length;
    }
    return true;
}

bool FileReader::read_runs(std::uint64_t begin, std::uint64_t length) {
    const protocol::Layout& layout = wanted_.layout;
    const std::uint64_t step =
        layout.run() * std::clamp<std::uint64_t>(kBufferBytes / layout.run(), 1, kMostListed);
    std::vector<ucp_dt_iov_t> runs;
    while (length > 0) {
        // A run that is larger than the buffer comes alone.
        const std::uint64_t part = std::min(step - begin % step, length);
        runs.clear();
        layout.pieces(origin(), begin, part, runs);
        if (!read_listed(begin, part, runs)) {
            return false;
        }
        begin += part;
        length -= part;
    }
    return true;
}

// Some runs of the file, to bytes from `at` on of what is wanted.
bool FileReader::read_listed(std::uint64_t at, std::uint64_t length,
                             std::span<const ucp_dt_iov_t> runs) {
    if (runs.size() == 1) {
        return read_run(offset_of(runs[0]), at, length);
    }
    list_target(at, length);
    memory::Copier copier(target_);
    std::byte* const buffer = this->buffer();
    std::uint64_t begin = 0;  // what the buffer has of the file
    std::uint64_t end = 0;
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::uint64_t offset = offset_of(runs[i]);
        if (offset < begin || offset + runs[i].length > end) {
            begin = offset;
            end = offset + runs[i].length;
            for (std::size_t k = i + 1; k < runs.size(); ++k) {
                const std::uint64_t next = offset_of(runs[k]);
                const std::uint64_t next_end = next + runs[k].length;
                if (next < end || next > end + kGapBytes || next_end > begin + kBufferBytes) {
                    break;
                }
                end = next_end;
            }
            ucp_dt_iov_t piece{buffer, end - begin};
            if (!fetch(begin, {&piece, 1})) {
                return false;
            }
        }
        copier.scatter(done, buffer + (offset - begin), runs[i].length,
                       runs[i].length < kLeastPastCaches ? memory::Write::cached : how_);
        done += runs[i].length;
    }
    return true;
}

// One run of the file, to bytes from `at` on of what is wanted.
bool FileReader::read_run(std::uint64_t offset, std::uint64_t at, std::uint64_t length) {
    if (straight_) {
        list_target(at, length);
        return fetch(offset, target_);
    }
    std::byte* const buffer = this->buffer();
    while (length > 0) {
        const std::uint64_t part = std::min(length, kBufferBytes);
        ucp_dt_iov_t piece{buffer, part};
        if (!fetch(offset, {&piece, 1})) {
            return false;
        }
        list_target(at, part);
        memory::Copier(target_).scatter(0, buffer, part, how_);
        offset += part;
        at += part;
        length -= part;
    }
    return true;
}

// Reads bytes from `offset` on into pieces, which it uses up.
bool FileReader::fetch(std::uint64_t offset, std::span<ucp_dt_iov_t> pieces) {
    const bool waits = wait_ == Wait::for_disk;
    std::array<iovec, kPiecesOfCall> vectors;
    while (!pieces.empty()) {
        const std::size_t count = std::min(pieces.size(), vectors.size());
        for (std::size_t i = 0; i < count; ++i) {
            vectors[i] = {pieces[i].buffer, pieces[i].length};
        }
        const ssize_t got = preadv2(file_, vectors.data(), static_cast<int>(count),
                                    static_cast<off_t>(offset), waits ? 0 : RWF_NOWAIT);
        if (got <= 0) {
            if (got < 0 && errno == EINTR) {
                continue;
            }
            // Not every file system can tell without waiting.
            const bool later = got < 0 && !waits && (errno == EAGAIN || errno == EOPNOTSUPP);
            outcome_ = later ? Outcome::later : Outcome::failed;
            return false;
        }
        auto left = static_cast<std::uint64_t>(got);
        offset += left;
        while (left > 0) {
            ucp_dt_iov_t& piece = pieces.front();
            const std::uint64_t part = std::min<std::uint64_t>(left, piece.length);
            piece.buffer = static_cast<std::byte*>(piece.buffer) + part;
            piece.length -= part;
            left -= part;
            if (piece.length == 0) {
                pieces = pieces.subspan(1);
            }
        }
    }
    return true;
}

std::byte* FileReader::buffer() {
    if (buffer_ == nullptr) {
        buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
    }
    return buffer_.get();
}

void FileReader::list_target(std::uint64_t at, std::uint64_t length) {
    target_.clear();
    if (item_.memory) {
        item_.memory->pieces(at, length, target_);
    } else {
        target_.push_back({item_.owned->data() + at, length});
    }
    new_pages_.clear(target_);
}

}  // namespace ucxstore::local_client

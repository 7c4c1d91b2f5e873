#include "local_server/seen_upload.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/status.hpp"
#include "local/frames.hpp"
#include "memory/resident.hpp"

namespace ucxstore::local_server {
namespace {

constexpr std::uint64_t kPiece = 64 << 10;

}  // namespace

SeenUpload::SeenUpload(base::Fd&& file)
    : mapping_(file, local::FileMapping::Access::read, local::kMaxUploadBytes),
      file_(std::move(file)) {}

// To read a hole of a mapping would fill it, with memory that the kernel counts to this process.
bool SeenUpload::is_there(std::uint64_t place, std::uint64_t length) const {
    return memory::is_resident(file_, mapping_.data() + place, length);
}

// As above, but holes stay holes. It takes twice the time.
void SeenUpload::read(std::uint64_t place, std::span<std::byte> target) const {
    while (!target.empty()) {
        const ssize_t got =
            pread(file_.get(), target.data(), target.size(), static_cast<off_t>(place));
        if (got <= 0) {
            if (got < 0 && errno == EINTR) {
                continue;
            }
            throw base::Error(base::ErrorKind::protocol, "an upload that cannot be read");
        }
        place += static_cast<std::uint64_t>(got);
        target = target.subspan(static_cast<std::size_t>(got));
    }
}

void SeenUpload::copy(std::uint64_t place, std::span<std::byte> target, memory::Write how) const {
    if (!is_there(place, target.size())) {
        return read(place, target);
    }
    const ucp_dt_iov_t piece{target.data(), target.size()};
    memory::Copier({&piece, 1}).scatter(0, mapping_.data() + place, target.size(), how);
}

void SeenUpload::pass(std::uint64_t place, std::uint64_t length, const Take& take) const {
    if (is_there(place, length)) {
        return take(0, {mapping_.data() + place, length});
    }
    std::array<std::byte, kPiece> piece;
    for (std::uint64_t at = 0; at < length; at += kPiece) {
        const std::span part(piece.data(), std::min(kPiece, length - at));
        read(place + at, part);
        take(at, part);
    }
}

}  // namespace ucxstore::local_server

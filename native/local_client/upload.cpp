#include "local_client/upload.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.hpp"
#include "local/frames.hpp"

namespace ucxstore::local_client {
namespace {

constexpr std::uint64_t kBytes = local::kMaxUploadBytes;
constexpr std::uint64_t kPage = 4096;

std::uint64_t pages_of(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage; }

}  // namespace

Upload::Upload() : file_(memfd_create("ucxstore-upload", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (!file_ || ftruncate(file_.get(), kBytes) != 0 ||
        fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        base::throw_errno("memory for values that are sent", base::ErrorKind::memory);
    }
    memory_.emplace(file_, local::FileMapping::Access::write, kBytes);
    pages_.emplace(kBytes / kPage);
}

std::optional<std::uint64_t> Upload::take(std::uint64_t bytes) {
    const auto first = pages_->take(pages_of(bytes));
    if (!first) {
        return std::nullopt;
    }
    try {
        taken_.emplace(*first, pages_of(bytes));
    } catch (...) {
        pages_->give(*first, pages_of(bytes));
        throw;
    }
    return *first * kPage;
}

void Upload::give(std::uint64_t place, std::uint64_t bytes) {
    const auto found = taken_.find(place / kPage);
    if (place % kPage != 0 || found == taken_.end() || found->second != pages_of(bytes)) {
        throw base::Error(base::ErrorKind::protocol, "room that was not taken");
    }
    pages_->give(found->first, found->second);
    taken_.erase(found);
}

}  // namespace ucxstore::local_client

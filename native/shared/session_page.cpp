#include "shared/session_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.hpp"
#include "base/steady.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Nobody can cut it, so that it never raises SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

SessionWords* map(int descriptor) {
    void* const memory =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<SessionWords*>(memory);
}

}  // namespace

SessionPage::SessionPage()
    : descriptor_(memfd_create("ucxstore-session", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (descriptor_ && ftruncate(descriptor_.get(), kPageBytes) == 0 &&
        fcntl(descriptor_.get(), F_ADD_SEALS, kSeals) == 0) {
        words_ = map(descriptor_.get());
    }
    if (words_ == nullptr) {
        base::throw_errno("a page for a session", base::ErrorKind::memory);
    }
    madvise(words_, kPageBytes, MADV_DONTFORK);
}

SessionPage::~SessionPage() { munmap(words_, kPageBytes); }

base::SeenCounts SessionPage::seen() const {
    return {words_->gets.load(std::memory_order_relaxed),
            words_->bytes.load(std::memory_order_relaxed)};
}

SessionWatch::SessionWatch(const base::Fd& descriptor) {
    struct stat status{};
    if (base::is_steady(descriptor) && fstat(descriptor.get(), &status) == 0 &&
        status.st_size == kPageBytes) {
        words_ = map(descriptor.get());
    }
    if (words_ == nullptr) {
        throw base::Error(base::ErrorKind::protocol, "a page of the session that cannot be used");
    }
}

SessionWatch::~SessionWatch() { munmap(words_, kPageBytes); }

void SessionWatch::count(std::uint64_t bytes) const {
    words_->gets.fetch_add(1, std::memory_order_relaxed);
    words_->bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::shared_ptr<SessionPage> SessionPages::add() {
    auto page = std::make_shared<SessionPage>();
    const base::Lock lock(mutex_);
    drop_gone();
    pages_.push_back(page);
    return page;
}

base::SeenCounts SessionPages::counts() const {
    const base::Lock lock(mutex_);
    base::SeenCounts sum = before_;
    for (const auto& page : pages_) {
        sum += page->seen();
    }
    return sum;
}

void SessionPages::drop_gone() {
    std::erase_if(pages_, [this](const auto& page) REQUIRES(mutex_) {
        const bool gone = page.use_count() == 1;
        if (gone) {
            before_ += page->seen();
        }
        return gone;
    });
}

}  // namespace ucxstore::shared

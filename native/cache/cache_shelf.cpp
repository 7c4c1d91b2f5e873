#include "cache/cache_shelf.hpp"

#include <algorithm>
#include <utility>

#include "cache/run_names.hpp"

namespace ucxstore::cache {
namespace {

// What blocks of an arena once had stays memory of the server's until the arena is empty. So arenas
// may take more than the cache holds, by this share and so many bytes: for blocks that lie apart,
// and for slabs that are not full. Beyond that, values are not shown.
constexpr std::uint64_t kLoosePart = 4;
constexpr std::uint64_t kLooseBytes = 8ull << 20;

// Of the index: half of its cells stay empty.
constexpr std::uint64_t kCellBytes = 2 * sizeof(shared::Cell);

class ShelfReaders : public Cache::Readers {
  public:
    explicit ShelfReaders(std::shared_ptr<shared::Shelf> shelf) : shelf_(std::move(shelf)) {}

    std::uint64_t bytes_of(const std::string& key, std::uint64_t size) const override {
        const bool is_run = key.find('\0') != std::string::npos;
        return is_run ? size : shared::Shelf::capacity(key, size) + kCellBytes;
    }
    void withdraw(const memory::Sized& value) override { shelf_->withdraw(value); }
    unsigned take_uses(const memory::Sized& value) override { return shelf_->take_uses(value); }
    std::uint64_t waiting() const override { return shelf_->waiting(); }
    void sweep() override { shelf_->sweep(); }

  private:
    const std::shared_ptr<shared::Shelf> shelf_;
};

}  // namespace

std::shared_ptr<shared::Shelf> make_cache_shelf(std::uint64_t cache_bytes,
                                                std::uint64_t keep_bytes) {
    const std::uint64_t loose = cache_bytes / kLoosePart + kLooseBytes;
    const std::uint64_t most =
        cache_bytes + std::min(loose, shared::Arenas::kAnyBytes - 1 - cache_bytes);
    const std::uint64_t first = std::min(cache_bytes, shared::Arenas::kFirstBytes - 1);
    return shared::Shelf::make(
        {.first_bytes = (first / shared::Arenas::kHugePage + 1) * shared::Arenas::kHugePage,
         .most_bytes = most,
         .counts_uses = true,
         .keep_bytes = keep_bytes});
}

std::unique_ptr<Cache::Readers> readers_of(std::shared_ptr<shared::Shelf> shelf) {
    return shelf == nullptr ? nullptr : std::make_unique<ShelfReaders>(std::move(shelf));
}

}  // namespace ucxstore::cache

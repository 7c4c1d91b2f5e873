#include "storage/evicting.hpp"

#include <algorithm>
#include <utility>

#include "protocol/keys.hpp"
#include "storage/memory.hpp"

namespace ucxstore::storage {
namespace {

// Of the limit of memory, for the keys of evicted values.
constexpr std::uint64_t kRememberedPart = 8;

}  // namespace

// In the place of a value that was evicted. It has no bytes.
class Evicting::LostValue : public memory::Region {
  public:
    LostValue(std::shared_ptr<Remembered> remembered, const memory::Region& value,
              std::uint64_t bytes)
        : remembered_(std::move(remembered)), size_(value.size()), bytes_(bytes) {
        set_version(value.version());
        ++remembered_->keys;
        remembered_->bytes += bytes_;
    }
    LostValue(const LostValue&) = delete;
    LostValue& operator=(const LostValue&) = delete;
    ~LostValue() override {
        --remembered_->keys;
        remembered_->bytes -= bytes_;
    }
    std::byte* data() const override { return nullptr; }
    std::uint64_t size() const override { return size_; }

  private:
    const std::shared_ptr<Remembered> remembered_;
    const std::uint64_t size_;
    const std::uint64_t bytes_;
};

Evicting::Evicting(std::vector<std::string> below, std::uint64_t limit)
    : below_(std::move(below)), most_bytes_(limit / kRememberedPart) {}

bool Evicting::takes(const std::string& key, std::uint64_t) const {
    const auto begins = [&](const std::string& prefix) { return key.starts_with(prefix); };
    return std::ranges::any_of(below_, begins) && !protocol::is_metadata(key);
}

std::shared_ptr<memory::Region> Evicting::stand_in(const std::string& key,
                                                   const memory::Region& value) {
    const std::uint64_t bytes = MemoryStorage::bytes_of_entry(key);
    if (remembered_->bytes + bytes > most_bytes_) {
        return nullptr;
    }
    return std::make_shared<LostValue>(remembered_, value, bytes);
}

void Evicting::note_gone(std::uint64_t bytes) {
    ++evicted_;
    evicted_bytes_ += bytes;
    const base::Lock lock(mutex_);
    log_.add(bytes);
}

void Evicting::count(base::MemoryCounts& counts) const {
    counts.evicted = evicted_;
    counts.evicted_bytes = evicted_bytes_;
    counts.evicted_keys = remembered_->keys;
}

}  // namespace ucxstore::storage

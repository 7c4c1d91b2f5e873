#include "shared/shelf.hpp"

#include <fcntl.h>

#include <atomic>
#include <cstring>

#include "base/ensure.hpp"
#include "base/status.hpp"

namespace ucxstore::shared {
namespace {

Fd duplicate(int descriptor) {
    Fd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
        throw_errno("a descriptor for a reader", ErrorKind::resource);
    }
    return copy;
}

}  // namespace

// A value in a block of an arena, with its key behind it.
class Shelf::Value : public Region {
  public:
    Value(std::shared_ptr<Shelf> shelf, std::string_view key, std::uint64_t size)
        : shelf_(std::move(shelf)),
          size_(size),
          key_bytes_(key.size()),
          block_(shelf_->arenas_.take(block_bytes(size, key.size()))) {
        std::memcpy(block_.data + key_offset(size), key.data(), key.size());
    }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    ~Value() override {
        if (was_published) {
            shelf_->limbo_.retire(block_);
        } else {
            shelf_->arenas_.give(block_);
        }
    }
    std::byte* data() const override { return block_.data; }
    std::uint64_t size() const override { return size_; }

    std::string_view key() const {
        return {reinterpret_cast<const char*>(block_.data) + key_offset(size_), key_bytes_};
    }
    Entry entry(std::uint64_t until) const {
        return {place_of(block_.arena, block_.offset), size_, version(), until,
                static_cast<std::uint32_t>(key_bytes_)};
    }

    mutable bool was_published = false;  // under the shelf's mutex, and in the destructor

  private:
    const std::shared_ptr<Shelf> shelf_;
    const std::uint64_t size_;
    const std::size_t key_bytes_;
    const Block block_;
};

std::shared_ptr<Shelf> Shelf::make() { return std::shared_ptr<Shelf>(new Shelf); }

const std::byte* Shelf::bytes_at(Place place) const {
    const auto arena = arenas_.arena(arena_of(place));
    return arena == nullptr ? nullptr : arena->data() + offset_of(place);
}

std::shared_ptr<Region> Shelf::allocate(std::string_view key, std::uint64_t size) {
    return std::make_shared<Value>(shared_from_this(), key, size);
}

void Shelf::publish(const Region& value, std::uint64_t until) {
    const auto* const ours = dynamic_cast<const Value*>(&value);
    ensure(ours != nullptr && value.version() != 0, "only finished values of a shelf are shown");
    const std::lock_guard lock(mutex_);
    try {
        index_.put(ours->key(), ours->entry(until));
        ours->was_published = true;
    } catch (const Error&) {
        index_.remove(ours->key());
    }
}

void Shelf::withdraw(std::string_view key) {
    const std::lock_guard lock(mutex_);
    index_.remove(key);
}

std::shared_ptr<PinTable> Shelf::add_reader() {
    auto table = std::make_shared<PinTable>();
    limbo_.add(table);
    return table;
}

Fd Shelf::index() const {
    const std::lock_guard lock(mutex_);
    return duplicate(index_.descriptor());
}

Fd Shelf::arena(std::uint32_t number) const {
    const auto arena = arenas_.arena(number);
    return arena == nullptr ? Fd() : duplicate(arena->descriptor());
}

Shelf::Usage Shelf::usage() const {
    Usage usage{arenas_.usage(), 0, limbo_.waiting()};
    const std::lock_guard lock(mutex_);
    usage.keys = index_.size();
    return usage;
}

}  // namespace ucxstore::shared

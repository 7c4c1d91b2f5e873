#include "shared/shelf.hpp"

#include <fcntl.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/ensure.hpp"
#include "base/recycler.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "shared/sealed.hpp"

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
        : Value(shelf, key.size(), size, shelf->arenas_.take(block_bytes(size, key.size()))) {
        std::memcpy(block_.data + key_offset(size), key.data(), key.size());
    }
    // In a block that has the value and its key already.
    Value(std::shared_ptr<Shelf> shelf, std::size_t key_bytes, std::uint64_t size,
          const Block& block, bool read_only = false)
        : shelf_(std::move(shelf)),
          size_(size),
          key_bytes_(key_bytes),
          block_(block),
          read_only_(read_only) {}
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
    bool read_only() const override { return read_only_; }

    std::string_view key() const {
        return {reinterpret_cast<const char*>(block_.data) + key_offset(size_), key_bytes_};
    }
    Entry entry(std::uint64_t until) const {
        return {place_of(block_.arena, block_.offset), size_, version(), until,
                static_cast<std::uint32_t>(key_bytes_)};
    }

    // Lets what is shown get huge pages, if it is large.
    void settle() const {
        if (!read_only_ && block_.bytes >= Arenas::kHugePage) {
            alive_ = std::make_shared<char>();
            shelf_->collapser_.add(shelf_->arenas_.arena(block_.arena), block_, alive_);
        }
    }

    const Shelf* shelf() const { return shelf_.get(); }
    std::uint32_t arena() const { return block_.arena; }

    mutable bool was_published = false;  // under the shelf's mutex, and in the destructor

  private:
    const std::shared_ptr<Shelf> shelf_;
    const std::uint64_t size_;
    const std::size_t key_bytes_;
    const Block block_;
    const bool read_only_;
    mutable std::shared_ptr<void> alive_;  // for others to see its end
};

Shelf::Shelf(std::uint64_t most_held)
    : arenas_([this](std::uint32_t number) { dropped(number); }, Arenas::kFirstBytes,
              Recycler::instance().limit()),
      board_(most_held) {}

std::shared_ptr<Shelf> Shelf::make(std::uint64_t most_held) {
    return std::shared_ptr<Shelf>(new Shelf(most_held));
}

const std::byte* Shelf::bytes_at(Place place) const {
    const auto arena = arenas_.arena(arena_of(place));
    return arena == nullptr ? nullptr : arena->data() + offset_of(place);
}

std::shared_ptr<Region> Shelf::allocate(std::string_view key, std::uint64_t size) {
    return std::make_shared<Value>(shared_from_this(), key, size);
}

std::shared_ptr<Region> Shelf::adopt(std::string_view key, std::uint64_t size, Fd file) {
    const auto block = size < kLeastInFile
                           ? std::nullopt
                           : arenas_.adopt(std::move(file), file_bytes(size, key.size()));
    if (!block) {
        return nullptr;
    }
    step();
    std::shared_ptr<Value> value;
    try {
        value = std::make_shared<Value>(shared_from_this(), key.size(), size, *block, true);
    } catch (...) {
        arenas_.give(*block);
        throw;
    }
    return value->key() == key ? value : nullptr;
}

void Shelf::publish(const Region& value, std::uint64_t until) {
    const auto* const ours = dynamic_cast<const Value*>(&value);
    ensure(ours != nullptr && value.version() != 0, "only finished values of a shelf are shown");
    const std::lock_guard lock(mutex_);
    try {
        step();
        index_.put(ours->key(), ours->entry(until));
        step();
        if (!std::exchange(ours->was_published, true)) {
            ours->settle();
        }
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

Shelf::Index Shelf::index() const {
    const std::lock_guard lock(mutex_);
    return {duplicate(index_.descriptor()), index_.generation()};
}

std::uint64_t Shelf::generation() const {
    const std::lock_guard lock(mutex_);
    return index_.generation();
}

Fd Shelf::board() const { return duplicate(board_.descriptor()); }

std::optional<std::uint32_t> Shelf::arena_with(const Region& value) const {
    const auto* const ours = dynamic_cast<const Value*>(&value);
    if (ours == nullptr || ours->shelf() != this) {
        return std::nullopt;
    }
    const std::lock_guard lock(mutex_);
    return ours->was_published ? std::optional(ours->arena()) : std::nullopt;
}

std::shared_ptr<void> Shelf::watch_drops(OnDrop on_drop) {
    auto watcher = std::make_shared<OnDrop>(std::move(on_drop));
    const std::lock_guard lock(watchers_mutex_);
    std::erase_if(watchers_, [](const auto& weak) { return weak.expired(); });
    watchers_.push_back(watcher);
    return watcher;
}

void Shelf::dropped(std::uint32_t number) {
    std::vector<std::shared_ptr<OnDrop>> watchers;
    {
        const std::lock_guard lock(watchers_mutex_);
        for (const auto& weak : watchers_) {
            if (auto watcher = weak.lock()) {
                watchers.push_back(std::move(watcher));
            }
        }
    }
    for (const auto& watcher : watchers) {
        (*watcher)(number);
    }
}

Shelf::SharedArena Shelf::arena(std::uint32_t number) const {
    const auto arena = arenas_.arena(number);
    return arena == nullptr ? SharedArena()
                            : SharedArena{duplicate(arena->descriptor()), arena->size()};
}

ShelfCounts Shelf::counts() {
    limbo_.sweep();
    const Arenas::Usage usage = arenas_.usage();
    const PinTable::Seen seen = limbo_.seen();
    return {.gets_seen = seen.gets,
            .bytes_seen = seen.bytes,
            .arenas = usage.arenas,
            .arena_bytes = usage.reserved,
            .arena_bytes_used = usage.taken,
            .arena_bytes_slack = usage.slack,
            .arena_bytes_waiting = limbo_.waiting(),
            .arena_bytes_held = board_.held(),
            .adopted = usage.adopted,
            .adopted_bytes = usage.adopted_bytes};
}

}  // namespace ucxstore::shared

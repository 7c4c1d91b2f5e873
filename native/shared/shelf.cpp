#include "shared/shelf.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/ensure.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "shared/sealed.hpp"

namespace ucxstore::shared {
namespace {

// How many bytes a thread may show before readers' pins are looked at again.
constexpr std::uint64_t kLookEvery = 4 << 20;

base::Fd duplicate(int descriptor) {
    base::Fd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
        base::throw_errno("a descriptor for a reader", base::ErrorKind::resource);
    }
    return copy;
}

}  // namespace

// A value in a block of an arena, with its key behind it.
class Shelf::Value : public memory::Region {
  public:
    Value(std::shared_ptr<Shelf> shelf, std::string_view key, std::uint64_t size,
          std::shared_ptr<void> keeps)
        : Value(shelf, key.size(), size, shelf->arenas_.take(block_bytes(size, key.size())), false,
                std::move(keeps)) {
        std::memcpy(block_.data + key_offset(size), key.data(), key.size());
    }
    // In a block that has the value and its key already.
    Value(std::shared_ptr<Shelf> shelf, std::size_t key_bytes, std::uint64_t size,
          const Block& block, bool read_only, std::shared_ptr<void> keeps)
        : shelf_(std::move(shelf)),
          keeps_(std::move(keeps)),
          size_(size),
          key_bytes_(key_bytes),
          block_(block),
          read_only_(read_only) {}
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    ~Value() override {
        if (was_published) {
            shelf_->retired_blocks_.retire(block_, std::move(keeps_));
        } else {
            shelf_->arenas_.give(block_, incomplete);
        }
    }
    std::byte* data() const override { return block_.data; }
    std::uint64_t size() const override { return size_; }
    bool read_only() const override { return read_only_; }
    Extent extent() const override { return {block_.bytes, block_.reused}; }

    std::string_view key() const {
        return {reinterpret_cast<const char*>(block_.data) + key_offset(size_), key_bytes_};
    }
    IndexEntry entry(std::uint64_t until) const {
        return {place_of(block_.arena, block_.offset), size_, version(), until,
                static_cast<std::uint32_t>(key_bytes_)};
    }

    // Lets what is shown get huge pages, if it is large.
    void settle() const {
        if (!read_only_ && block_.bytes >= Arenas::kHugePage) {
            alive_ = std::make_shared<char>();
            shelf_->huge_page_maker_.add(*shelf_->arenas_.arena(block_.arena), block_, alive_);
        }
    }

    const std::shared_ptr<Shelf>& shelf() const { return shelf_; }
    std::uint32_t arena() const { return block_.arena; }
    Place place() const { return place_of(block_.arena, block_.offset); }

    mutable bool incomplete = false;     // by whoever has it alone
    mutable bool was_published = false;  // under the shelf's mutex, and in the destructor

  private:
    const std::shared_ptr<Shelf> shelf_;
    std::shared_ptr<void> keeps_;
    const std::uint64_t size_;
    const std::size_t key_bytes_;
    const Block block_;
    const bool read_only_;
    mutable std::shared_ptr<void> alive_;  // for others to see its end
};

Shelf::Shelf(const ShelfOptions& options)
    : counts_uses_(options.counts_uses),
      arenas_([this](std::uint32_t number) { dropped(number); }, options.first_bytes,
              options.most_bytes, options.keep_bytes, options.bound),
      reader_limit_(options.most_held),
      retired_blocks_(arenas_, &reader_limit_, options.most_held, options.bound) {}

std::shared_ptr<Shelf> Shelf::make(const ShelfOptions& options) {
    return std::shared_ptr<Shelf>(new Shelf(options));
}

std::shared_ptr<Shelf> Shelf::of(const memory::Region& value) {
    const auto* const one = dynamic_cast<const Value*>(&value);
    return one == nullptr ? nullptr : one->shelf();
}

// nullptr where it is none of this shelf's.
const Shelf::Value* Shelf::own(const memory::Sized& value) const {
    const auto* const one = dynamic_cast<const Value*>(&value);
    return one == nullptr || one->shelf().get() != this ? nullptr : one;
}

bool Shelf::holds(const memory::Sized& value) const { return own(value) != nullptr; }

const std::byte* Shelf::bytes_at(Place place) const {
    const auto arena = arenas_.arena(arena_of(place));
    return arena == nullptr ? nullptr : arena->data() + offset_of(place);
}

std::shared_ptr<memory::Region> Shelf::allocate(std::string_view key, std::uint64_t size,
                                                std::shared_ptr<void> keeps) {
    return std::make_shared<Value>(shared_from_this(), key, size, std::move(keeps));
}

void Shelf::note_incomplete(const memory::Region& value) {
    if (const Value* const ours = own(value)) {
        ours->incomplete = true;
    }
}

std::shared_ptr<memory::Region> Shelf::adopt(std::string_view key, std::uint64_t size,
                                             base::Fd&& file, std::shared_ptr<void> keeps) {
    const auto block = size < kLeastInFile
                           ? std::nullopt
                           : arenas_.adopt(std::move(file), file_bytes(size, key.size()));
    if (!block) {
        return nullptr;
    }
    base::step();
    std::shared_ptr<Value> value;
    try {
        value = std::make_shared<Value>(shared_from_this(), key.size(), size, *block, true,
                                        std::move(keeps));
    } catch (...) {
        arenas_.give(*block);
        throw;
    }
    return value->key() == key ? value : nullptr;
}

void Shelf::publish(const memory::Region& value, std::uint64_t until) {
    const Value* const ours = own(value);
    base::ensure(ours != nullptr && value.version() != 0,
                 "only finished values of a shelf are shown");
    // What readers may hold becomes less as memory is taken.
    static thread_local std::uint64_t since_look = 0;
    since_look += ours->extent().bytes;
    if (since_look >= kLookEvery) {
        since_look = 0;
        retired_blocks_.sweep_soon();
    }
    const base::Lock lock(mutex_);
    try {
        base::step();
        index_.put(ours->key(), ours->entry(until));
        base::step();
        if (!std::exchange(ours->was_published, true)) {
            ours->settle();
        }
    } catch (const base::Error&) {
        index_.remove(ours->key());
    }
}

void Shelf::withdraw(std::string_view key) {
    const base::Lock lock(mutex_);
    index_.remove(key);
}

void Shelf::withdraw(const memory::Sized& value) {
    const Value* const ours = own(value);
    const base::Lock lock(mutex_);
    if (ours != nullptr && ours->was_published) {
        index_.remove(ours->key());
    }
}

void Shelf::believe_until(std::uint64_t until) {
    const base::Lock lock(mutex_);
    index_.believe_until(until);
}

void Shelf::end() {
    {
        const base::Lock lock(mutex_);
        ended_ = true;
        retired_blocks_.end();
    }
    dropped(kAllArenas);
}

std::shared_ptr<PinTable> Shelf::add_reader(std::shared_ptr<const void> keeps,
                                            std::shared_ptr<Holder> holder) {
    auto table = std::make_shared<PinTable>(counts_uses_, std::move(keeps), std::move(holder));
    const base::Lock lock(mutex_);
    if (ended_) {
        throw base::Error(base::ErrorKind::scratch_ended, "its values are no longer shown");
    }
    retired_blocks_.add(table);
    return table;
}

unsigned Shelf::take_uses(const memory::Sized& value) const {
    const Value* const ours = own(value);
    return ours == nullptr ? 0 : retired_blocks_.take_uses(ours->place());
}

std::function<bool(const memory::Sized&)> Shelf::pinned() const {
    return [this, places = retired_blocks_.pinned()](const memory::Sized& value) {
        const Value* const ours = own(value);
        return ours != nullptr && places.contains(ours->place());
    };
}

std::uint64_t Shelf::seen_unasked() const {
    const std::uint64_t shown = shown_;
    return std::max(retired_blocks_.seen().gets, shown) - shown;
}

Shelf::Index Shelf::index() const {
    const base::Lock lock(mutex_);
    return {duplicate(index_.descriptor()), index_.generation()};
}

std::uint64_t Shelf::generation() const {
    const base::Lock lock(mutex_);
    return index_.generation();
}

base::Fd Shelf::reader_limit() const { return duplicate(reader_limit_.descriptor()); }

std::optional<std::uint32_t> Shelf::arena_with(const memory::Region& value) const {
    const Value* const ours = own(value);
    if (ours == nullptr) {
        return std::nullopt;
    }
    const base::Lock lock(mutex_);
    return ours->was_published && !ended_ ? std::optional(ours->arena()) : std::nullopt;
}

std::shared_ptr<void> Shelf::watch_drops(OnDrop on_drop) {
    auto watcher = std::make_shared<OnDrop>(std::move(on_drop));
    const base::Lock lock(watchers_mutex_);
    std::erase_if(watchers_, [](const auto& weak) { return weak.expired(); });
    watchers_.push_back(watcher);
    return watcher;
}

void Shelf::dropped(std::uint32_t number) {
    std::vector<std::shared_ptr<OnDrop>> watchers;
    {
        const base::Lock lock(watchers_mutex_);
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
    if (arena == nullptr) {
        return {};
    }
    base::Fd descriptor = arena->open_for_reader();
    if (!descriptor) {
        base::throw_errno("a descriptor for a reader", base::ErrorKind::resource);
    }
    return {std::move(descriptor), arena->size()};
}

base::ShelfCounts Shelf::counts() {
    retired_blocks_.sweep_soon();
    const Arenas::Usage usage = arenas_.usage();
    const base::SeenCounts seen = retired_blocks_.seen();
    return {.gets_seen = seen.gets,
            .bytes_seen = seen.bytes,
            .arenas = usage.arenas,
            .arena_bytes = usage.reserved,
            .arena_bytes_used = usage.taken,
            .arena_bytes_slack = usage.slack,
            .arena_bytes_waiting = retired_blocks_.waiting(),
            .arena_bytes_held = reader_limit_.held(),
            .adopted = usage.adopted,
            .adopted_bytes = usage.adopted_bytes};
}

}  // namespace ucxstore::shared

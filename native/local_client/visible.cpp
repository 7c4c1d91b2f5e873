#include "local_client/visible.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/steps.hpp"
#include "client/reply.hpp"
#include "local_client/map_value.hpp"
#include "memory/copier.hpp"
#include "memory/huge_pages.hpp"
#include "protocol/selecting.hpp"

namespace ucxstore::local_client {
namespace {

// Of a value. Fewer are copied as fast as they are mapped, unmapped, and copied by the kernel where
// they are written.
constexpr std::uint64_t kLeastMappedBytes = 8ull << 20;

}  // namespace

// A pin that is used until this goes.
class Visible::Used {
  public:
    explicit Used(std::shared_ptr<shared::Pins> pins)
        : pins_(std::move(pins)), pin_(pins_->take()) {}
    Used(Used&& other) noexcept
        : pins_(std::move(other.pins_)), pin_(std::exchange(other.pin_, nullptr)) {}
    Used& operator=(Used&&) = delete;
    ~Used() {
        if (pin_ != nullptr) {
            pins_->give(pin_);
        }
    }
    std::atomic<shared::Place>* get() const { return pin_; }
    void pass_on() const { pins_->pass_on(pin_); }
    bool lost() const { return pins_->lost(); }

  private:
    std::shared_ptr<shared::Pins> pins_;
    std::atomic<shared::Place>* pin_;
};

// What is wanted of a value that was found.
struct Visible::Wanted {
    const shared::IndexEntry& entry;
    const protocol::Selected& selected;

    // Of its block.
    std::uint64_t bytes() const { return shared::block_bytes(entry.size, entry.key_bytes); }
};

namespace {

protocol::ReplyHeader header_of(std::uint32_t item, const shared::IndexEntry& entry) {
    protocol::ReplyHeader header{};
    header.item = item;
    header.status = protocol::Status::ok;
    header.value_size = entry.size;
    header.version = entry.version;
    return header;
}

void copy_selected(const std::byte* value, const protocol::Selected& selected, client::Item& item,
                   client::Operation& operation) {
    if (selected.size == 0) {
        return;
    }
    std::vector<ucp_dt_iov_t> target;
    if (item.memory) {
        item.memory->pieces(0, selected.size, target);
    } else {
        target.push_back({item.owned->data(), selected.size});
    }
    operation.new_pages.clear(target);
    const memory::Write how = operation.large ? memory::Write::past_caches : memory::Write::cached;
    memory::Copier copier(target);
    if (selected.several) {
        std::uint64_t at = 0;
        for (const protocol::Span& span : selected.spans) {
            copier.scatter(at, value + span.begin, span.length, how);
            at += span.length;
        }
        return;
    }
    std::vector<ucp_dt_iov_t> source;
    selected.layout.pieces(const_cast<std::byte*>(value), 0, selected.size, source);
    std::uint64_t at = 0;
    for (const ucp_dt_iov_t& piece : source) {
        copier.scatter(at, static_cast<const std::byte*>(piece.buffer), piece.length, how);
        at += piece.length;
    }
}

}  // namespace

const std::byte* Visible::bytes_at(shared::Place place, std::uint64_t bytes) const {
    const auto arena = arenas.find(shared::arena_of(place));
    const std::uint64_t offset = shared::offset_of(place);
    const bool there = arena != arenas.end() && offset <= arena->second->size() &&
                       bytes <= arena->second->size() - offset;
    return there ? arena->second->data() + offset : nullptr;
}

std::optional<shared::IndexEntry> Visible::find(std::string_view key,
                                                std::atomic<shared::Place>* pin, bool asked) const {
    if (pin == nullptr) {
        return std::nullopt;
    }
    std::uint32_t unknown = 0;
    return index->find(
        key, *pin,
        [this](shared::Place place, std::uint64_t bytes) { return bytes_at(place, bytes); },
        unknown, asked);
}

std::optional<std::uint64_t> Visible::copy(std::string_view key,
                                           const client::Link::MakeRoom& make_room) const {
    Used pin(pins);
    const auto entry = find(key, pin.get());
    if (!entry || pins->lost()) {  // or the key was compared with other bytes
        return std::nullopt;
    }
    std::byte* const out = make_room(entry->size);
    if (out == nullptr) {
        return std::nullopt;
    }
    const bool large = entry->size >= client::Operation::kLargeBytes;
    const ucp_dt_iov_t target{out, entry->size};
    memory::Copier({&target, 1})
        .scatter(0, bytes_at(entry->place, entry->size), entry->size,
                 large ? memory::Write::past_caches : memory::Write::cached);
    base::step();
    if (pins->lost()) {
        return std::nullopt;
    }
    pins->count(entry->size);
    pins->note_use(entry->place);
    return entry->size;
}

// A part of a value, pinned where it lies.
class Visible::Borrowed : public memory::Region {
  public:
    Borrowed(Used pin, std::shared_ptr<const SeenArena> arena, const std::byte* data,
             std::uint64_t size, std::optional<HeldValues::Hold> hold = std::nullopt)
        : hold_(std::move(hold)),
          pin_(std::move(pin)),
          arena_(std::move(arena)),
          data_(data),
          size_(size) {}
    std::byte* data() const override { return const_cast<std::byte*>(data_); }
    std::uint64_t size() const override { return size_; }
    bool read_only() const override { return true; }
    bool lost() const override { return pin_.lost(); }

  private:
    const std::optional<HeldValues::Hold> hold_;  // ends after the pin
    const Used pin_;
    const std::shared_ptr<const SeenArena> arena_;
    const std::byte* const data_;
    const std::uint64_t size_;
};

std::shared_ptr<memory::Region> Visible::hold(std::string_view key) const {
    Used pin(pins);
    const auto entry = find(key, pin.get());
    if (!entry) {
        return nullptr;
    }
    auto hold = held->add(entry->place, shared::block_bytes(entry->size, key.size()));
    if (!hold || pins->lost()) {
        return nullptr;
    }
    pin.pass_on();
    pins->count(entry->size);
    pins->note_use(entry->place);
    return std::make_shared<Borrowed>(std::move(pin), arenas.at(shared::arena_of(entry->place)),
                                      bytes_at(entry->place, entry->size), entry->size,
                                      std::move(hold));
}

// Maps what can be, and copies the rest; false, and nothing done, where nothing is mapped.
bool Visible::map_into(client::Operation& operation, const client::Item& item, const Wanted& wanted,
                       Used& pin) const {
    memory::ResultMemory& result = *operation.result;
    std::vector<ucp_dt_iov_t> pieces;
    item.memory->pieces(0, wanted.selected.size, pieces);
    auto* const target = static_cast<std::byte*>(pieces.empty() ? nullptr : pieces[0].buffer);
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(result.data()) % memory::kHugePageBytes == 0;
    if (pieces.size() != 1 || !aligned || target < result.data() ||
        target + wanted.selected.size > result.data() + result.size()) {
        return false;
    }
    const auto offset = static_cast<std::uint64_t>(target - result.data());
    const auto source = shared::offset_of(wanted.entry.place) +
                        static_cast<std::uint64_t>(wanted.selected.layout.offset());
    const auto arena = arenas.at(shared::arena_of(wanted.entry.place));
    // What follows the last byte of the result is nobody's.
    const std::uint64_t size = wanted.selected.size;
    const std::uint64_t end = offset + size;
    const std::uint64_t room = end == result.size() ? result.capacity() - end : 0;
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const ValuePart pages = whole_pages({source, offset, size, room}, page);
    if (arena->file() < 0 || pages.length < (result.eager ? page : kLeastMappedBytes)) {
        return false;
    }
    auto hold = held->add(wanted.entry.place, wanted.bytes());
    if (!hold) {
        return false;
    }
    struct Owner {
        std::optional<HeldValues::Hold> hold;  // ends after the pin
        Used pin;
    };
    pin.pass_on();
    const auto owner = std::make_shared<Owner>(std::move(hold), std::move(pin));
    base::step();
    const std::byte* const value = arena->data() + source;
    const auto copy = [&](std::uint64_t from, std::uint64_t to) {
        if (from < to) {
            const ucp_dt_iov_t piece{target + from, to - from};
            const memory::Write how =
                operation.large ? memory::Write::past_caches : memory::Write::cached;
            memory::Copier({&piece, 1}).scatter(0, value + from, to - from, how);
        }
    };
    const bool mapped =
        result.map(offset + pages.begin, pages.length, arena->file(), source + pages.begin);
    copy(0, mapped ? pages.begin : size);
    copy(mapped ? pages.begin + pages.length : size, size);
    base::step();
    if (mapped) {
        result.keep(owner);
    }
    return true;
}

bool Visible::answer(const std::string& peer, client::Operation& operation, std::uint32_t number,
                     bool asked) const {
    Used pin(pins);
    const auto entry = find(operation.gets[number].key, pin.get(), asked);
    if (!entry) {
        return false;
    }
    client::Item& item = operation.items[number];
    if (pins->lost()) {  // the key was compared with other bytes
        return false;
    }
    const auto selected = protocol::select(operation.gets[number], entry->size, entry->version);
    protocol::ReplyHeader header = header_of(number, *entry);
    if (const auto* refusal = std::get_if<protocol::Refusal>(&selected)) {
        header.status = refusal->status;
        header.value_size = refusal->value_size;
        header.version = refusal->version;
        client::note_reply(peer, operation, header, {});
        return true;
    }
    const auto& wanted = std::get<protocol::Selected>(selected);
    if (item.exact && wanted.size != item.memory->size()) {
        throw base::Error(base::ErrorKind::protocol, "a value that does not fit its request");
    }
    const std::byte* const value = bytes_at(entry->place, entry->size);
    const bool in_one_piece = !wanted.several && wanted.layout.run_count() == 1;
    if (!item.memory && operation.borrows && in_one_piece) {
        item.owned =
            std::make_shared<Borrowed>(std::move(pin), arenas.at(shared::arena_of(entry->place)),
                                       value + wanted.layout.offset(), wanted.size);
    } else if (!in_one_piece || operation.result == nullptr ||
               !map_into(operation, item, {*entry, wanted}, pin)) {
        if (!item.memory) {
            item.owned = memory::allocate_region(wanted.size);
        }
        base::step();
        copy_selected(value, wanted, item, operation);
        base::step();
    }
    if (pins->lost()) {
        item.owned = nullptr;
        return false;
    }
    client::note_reply(peer, operation, header, {});
    item.size = item.received = wanted.size;
    item.version = entry->version;
    pins->count(wanted.size);
    if (!asked) {
        pins->note_use(entry->place);
    }
    return true;
}

}  // namespace ucxstore::local_client

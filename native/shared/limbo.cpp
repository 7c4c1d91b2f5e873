#include "shared/limbo.hpp"

#include <algorithm>
#include <utility>

#include "base/steps.hpp"

namespace ucxstore::shared {

void Limbo::add(std::shared_ptr<PinTable> table) {
    const std::lock_guard lock(mutex_);
    tables_.push_back(std::move(table));
}

void Limbo::end() {
    const std::lock_guard lock(mutex_);
    for (const auto& table : tables_) {
        table->end();
    }
}

void Limbo::retire(const Block& block, std::shared_ptr<void> keeps) {
    const std::lock_guard lock(mutex_);
    retired_.push_back({block, std::move(keeps)});
    bytes_ += block.bytes;
    if (tables_.empty() || retired_.size() >= next_blocks_ || bytes_ >= next_bytes_) {
        sweep_locked();
    }
}

void Limbo::sweep() {
    const std::lock_guard lock(mutex_);
    sweep_locked();
}

void Limbo::forget_gone() {
    const std::lock_guard lock(mutex_);
    forget_gone_locked();
}

void Limbo::forget_gone_locked() {
    std::erase_if(tables_, [&](const auto& table) {
        const bool gone = table->reader_gone();
        if (gone) {
            seen_before_.gets += table->seen().gets;
            seen_before_.bytes += table->seen().bytes;
        }
        return gone;
    });
}

void Limbo::sweep_locked() {
    std::unordered_set<Place> pinned;
    forget_gone_locked();
    for (const auto& table : tables_) {
        std::unordered_set<Place> its;
        table->collect(its);
        table->set_held(bytes_of(its));
        pinned.merge(its);
    }
    if (board_ != nullptr) {
        board_->set_held(bytes_of(pinned));
    }
    std::erase_if(retired_, [&](const Retired& one) {
        const bool free = !pinned.contains(place_of(one.block.arena, one.block.offset));
        if (free) {
            bytes_ -= one.block.bytes;
            step();
            arenas_.give(one.block);
        }
        return free;
    });
    next_blocks_ = retired_.size() + kBlocks;
    next_bytes_ = bytes_ + std::min(kBytes, tables_.size() * kBytesPerReader);
}

std::uint64_t Limbo::bytes_of(const std::unordered_set<Place>& places) const {
    std::uint64_t bytes = 0;
    for (const Place place : places) {
        bytes += arenas_.bytes_of(arena_of(place), offset_of(place));
    }
    return bytes;
}

PinTable::Seen Limbo::seen() const {
    const std::lock_guard lock(mutex_);
    PinTable::Seen sum = seen_before_;
    for (const auto& table : tables_) {
        sum.gets += table->seen().gets;
        sum.bytes += table->seen().bytes;
    }
    return sum;
}

unsigned Limbo::take_uses(Place place) const {
    unsigned sum = 0;
    const std::lock_guard lock(mutex_);
    for (const auto& table : tables_) {
        sum += table->take_uses(place);
    }
    return sum;
}

std::uint64_t Limbo::waiting() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore::shared

#include "shared/limbo.hpp"

#include <utility>

namespace ucxstore::shared {

void Limbo::add(std::weak_ptr<const PinTable> table) {
    const std::lock_guard lock(mutex_);
    tables_.push_back(std::move(table));
}

void Limbo::retire(const Block& block) {
    const std::lock_guard lock(mutex_);
    retired_.push_back(block);
    bytes_ += block.bytes;
    if (tables_.empty() || retired_.size() >= next_blocks_ || bytes_ >= next_bytes_) {
        sweep_locked();
    }
}

void Limbo::sweep() {
    const std::lock_guard lock(mutex_);
    sweep_locked();
}

void Limbo::sweep_locked() {
    std::unordered_set<Place> pinned;
    std::erase_if(tables_, [&](const auto& weak) {
        const auto table = weak.lock();
        if (table != nullptr) {
            table->collect(pinned);
        }
        return table == nullptr;
    });
    std::erase_if(retired_, [&](const Block& block) {
        const bool free = !pinned.contains(place_of(block.arena, block.offset));
        if (free) {
            bytes_ -= block.bytes;
            arenas_.give(block);
        }
        return free;
    });
    next_blocks_ = retired_.size() + kBlocks;
    next_bytes_ = bytes_ + kBytes;
}

std::uint64_t Limbo::waiting() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore::shared

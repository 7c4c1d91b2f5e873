#include "storage/s3_fifo.hpp"

#include <algorithm>
#include <functional>

namespace ucxstore::storage {
namespace {

// What a ghost takes.
constexpr std::uint64_t kGhostBytes = 128;

// A fiftieth of the capacity for ghosts.
constexpr std::uint64_t kGhostPart = 50;

// As the paper has it: a tenth of what there is for what is new.
constexpr std::uint64_t kSmallPart = 10;

}  // namespace

std::uint64_t S3Fifo::ghost_bytes() const { return ghosts_.size() * kGhostBytes; }

void S3Fifo::forget_ghosts() {
    ghosts_.clear();
    ghost_of_.clear();
    ghost_charge_ = 0;
}

void S3Fifo::add(Entry& entry, const std::string& key, std::uint64_t charge,
                 bool recalled) noexcept {
    entry.key_ = &key;
    entry.charge_ = charge;
    entry.uses_ = 0;
    enter(entry, recalled);
}

void S3Fifo::enter(Entry& entry, bool in_main) noexcept {
    Queue& queue = in_main ? main_ : small_;
    entry.in_main_ = in_main;
    entry.newer_ = &queue.end;
    entry.older_ = queue.end.older_;
    entry.older_->newer_ = &entry;
    queue.end.older_ = &entry;
    queue.bytes += entry.charge_;
    ++size_;
}

void S3Fifo::remove(Entry& entry) noexcept {
    if (entry.newer_ == nullptr) {
        return;
    }
    entry.newer_->older_ = entry.older_;
    entry.older_->newer_ = entry.newer_;
    entry.newer_ = entry.older_ = nullptr;
    (entry.in_main_ ? main_ : small_).bytes -= entry.charge_;
    --size_;
}

// One look for each of its uses, one in the small queue, and one more.
bool S3Fifo::Search::over() const {
    return order_.size() == 0 || looks_ >= (kMostUses + 2) * first_round_;
}

// What others count is added in the first round only: one who counts on and on keeps nothing.
S3Fifo::Entry* S3Fifo::Search::look() {
    const bool counts = looks_++ < first_round_;
    return order_.pass(owner_, counts);
}

// Looks at the oldest of a queue, which goes, or moves on to the main queue.
S3Fifo::Entry* S3Fifo::pass(Owner& owner, bool counts) {
    const bool from_small =
        main_.empty() || (!small_.empty() && small_.bytes >= bytes() / kSmallPart);
    Entry& entry = (from_small ? small_ : main_).oldest();
    unsigned uses = std::min(entry.uses_.load(std::memory_order_relaxed), kMostUses);
    if (counts) {
        uses = std::min(uses + owner.take_uses(entry), kMostUses);
    }
    const bool stays = uses > (from_small ? 1 : 0) || owner.is_busy(entry);
    if (!stays) {
        if (from_small) {
            remember(entry);
        }
        remove(entry);
        return &entry;
    }
    remove(entry);
    entry.uses_ = from_small || uses == 0 ? 0 : uses - 1;
    enter(entry, true);
    return nullptr;
}

void S3Fifo::remember(const Entry& entry) {
    const std::size_t hash = std::hash<std::string>()(entry.key());
    if (ghost_of_.contains(hash)) {
        return;
    }
    ghosts_.push_front({hash, entry.charge_});
    ghost_of_.emplace(hash, ghosts_.begin());
    ghost_charge_ += entry.charge_;
    while (!ghosts_.empty() &&
           (ghost_charge_ > capacity_ || ghost_bytes() > capacity_ / kGhostPart)) {
        ghost_charge_ -= ghosts_.back().charge;
        ghost_of_.erase(ghosts_.back().hash);
        ghosts_.pop_back();
    }
}

bool S3Fifo::recall(const std::string& key) {
    const auto found = ghost_of_.find(std::hash<std::string>()(key));
    if (found == ghost_of_.end()) {
        return false;
    }
    ghost_charge_ -= found->second->charge;
    ghosts_.erase(found->second);
    ghost_of_.erase(found);
    return true;
}

}  // namespace ucxstore::storage

#include "storage/write_budget.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace ucxstore::storage {

class WriteBudget::State : public std::enable_shared_from_this<State> {
  public:
    explicit State(std::uint64_t limit) : limit_(limit), share_(limit / 4) {}

    Room take(std::uint64_t bytes, std::function<void(Room)> then, const Owner& owner) {
        const base::Lock lock(mutex_);
        if (waiting_.empty() && fits(bytes, owner)) {
            return give(bytes, owner);
        }
        waiting_.push_back({bytes, owner, std::move(then)});
        const Waiter* const own = &waiting_.back();
        Room room;
        serve([&](const Waiter& one) REQUIRES(mutex_) {
            if (&one == own) {
                room = give(bytes, owner);
            }
            return &one == own;  // nothing has changed for the others
        });
        is_short_ = !waiting_.empty();
        return room;
    }
    Room take_now(std::uint64_t bytes, const Owner& owner) {
        const base::Lock lock(mutex_);
        return give(bytes, owner);
    }
    std::uint64_t taken() {
        const base::Lock lock(mutex_);
        return taken_;
    }
    bool is_short() const { return is_short_; }
    void note_moved() { moved_.fetch_add(1, std::memory_order_relaxed); }
    std::uint64_t moved() const { return moved_; }

  private:
    struct Waiter {
        std::uint64_t bytes;
        Owner owner;
        std::function<void(Room)> then;
    };

    struct Taken {
        std::shared_ptr<State> state;
        std::uint64_t bytes = 0;
        Owner owner;

        Taken() = default;
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;
        ~Taken() {
            try {
                state->release(bytes, owner);
            } catch (const std::exception&) {
                // For want of memory; whoever waits is served when the next one lets go.
            }
        }
    };

    std::uint64_t of(const Owner& owner) const REQUIRES(mutex_) {
        const auto found = taken_by_.find(owner);
        return found == taken_by_.end() ? 0 : found->second;
    }
    // What the others have taken, of each no more than the share.
    std::uint64_t shares_without(const Owner& owner) const REQUIRES(mutex_) {
        std::uint64_t sum = 0;
        for (const auto& [one, bytes] : taken_by_) {
            sum += one == owner ? 0 : std::min(bytes, share_);
        }
        return sum;
    }
    bool fits(std::uint64_t bytes, const Owner& owner) const REQUIRES(mutex_) {
        if (taken_ == 0 || (bytes <= limit_ && taken_ <= limit_ - bytes)) {
            return true;
        }
        const std::uint64_t own = of(owner) + std::min(bytes, share_);
        return own <= share_ && shares_without(owner) + own <= limit_;
    }
    Room give(std::uint64_t bytes, const Owner& owner) REQUIRES(mutex_) {
        auto taken = std::make_shared<Taken>();
        taken_by_[owner] += bytes;
        taken_ += bytes;
        taken->bytes = bytes;
        taken->owner = owner;
        taken->state = shared_from_this();
        return taken;
    }
    // Removes those that have room now, and that `accept` takes. Each owner's come in order; nobody
    // goes before one that has no room at all.
    template <typename Accept>
    void serve(Accept accept) REQUIRES(mutex_) {
        std::unordered_set<Owner> waits_on;
        for (auto at = waiting_.begin(); at != waiting_.end();) {
            if (waits_on.contains(at->owner)) {
                ++at;
            } else if (fits(at->bytes, at->owner) && accept(*at)) {
                at = waiting_.erase(at);
            } else if (of(at->owner) == 0) {
                break;
            } else {
                waits_on.insert(at->owner);
                ++at;
            }
        }
    }
    void release(std::uint64_t bytes, const Owner& owner) {
        note_moved();
        std::vector<std::pair<std::function<void(Room)>, Room>> served;
        {
            const base::Lock lock(mutex_);
            taken_ -= bytes;
            if (const auto found = taken_by_.find(owner);
                found != taken_by_.end() && (found->second -= bytes) == 0) {
                taken_by_.erase(found);
            }
            serve([&](Waiter& one) REQUIRES(mutex_) {
                served.emplace_back(std::move(one.then), nullptr);
                served.back().second = give(one.bytes, one.owner);
                return true;
            });
            is_short_ = !waiting_.empty();
        }
        for (auto& [then, room] : served) {
            then(std::move(room));
        }
    }

    const std::uint64_t limit_;
    const std::uint64_t share_;
    std::atomic<bool> is_short_ = false;
    std::atomic<std::uint64_t> moved_ = 0;
    base::Mutex mutex_;
    std::uint64_t taken_ GUARDED_BY(mutex_) = 0;
    std::unordered_map<Owner, std::uint64_t> taken_by_ GUARDED_BY(mutex_);
    std::deque<Waiter> waiting_ GUARDED_BY(mutex_);
};

WriteBudget::WriteBudget(std::uint64_t limit) : state_(std::make_shared<State>(limit)) {}

WriteBudget::Room WriteBudget::take(std::uint64_t bytes, std::function<void(Room)> then,
                                    const Owner& owner) {
    return state_->take(bytes, std::move(then), owner);
}

WriteBudget::Room WriteBudget::take_now(std::uint64_t bytes, const Owner& owner) {
    return state_->take_now(bytes, owner);
}

std::uint64_t WriteBudget::taken() const { return state_->taken(); }

bool WriteBudget::is_short() const { return state_->is_short(); }

void WriteBudget::note_moved() { state_->note_moved(); }

std::uint64_t WriteBudget::moved() const { return state_->moved(); }

}  // namespace ucxstore::storage

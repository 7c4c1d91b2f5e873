#include "cache/write_budget.hpp"

#include <deque>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace ucxstore {

class WriteBudget::State : public std::enable_shared_from_this<State> {
  public:
    explicit State(std::uint64_t limit) : limit_(limit) {}

    Room take(std::uint64_t bytes, std::function<void(Room)> then) {
        const std::lock_guard lock(mutex_);
        if (waiting_.empty() && fits(bytes)) {
            return give(bytes);
        }
        waiting_.push_back({bytes, std::move(then)});
        return nullptr;
    }
    Room take_now(std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        return give(bytes);
    }
    std::uint64_t taken() {
        const std::lock_guard lock(mutex_);
        return taken_;
    }

  private:
    struct Waiter {
        std::uint64_t bytes;
        std::function<void(Room)> then;
    };

    struct Taken {
        std::shared_ptr<State> state;
        std::uint64_t bytes = 0;

        Taken() = default;
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;
        ~Taken() {
            try {
                state->release(bytes);
            } catch (const std::exception&) {
                // For want of memory; whoever waits is served when the next one lets go.
            }
        }
    };

    bool fits(std::uint64_t bytes) const {
        return taken_ == 0 || (bytes <= limit_ && taken_ <= limit_ - bytes);
    }
    // Under the lock.
    Room give(std::uint64_t bytes) {
        auto taken = std::make_shared<Taken>();
        taken->state = shared_from_this();
        taken->bytes = bytes;
        taken_ += bytes;
        return taken;
    }
    void release(std::uint64_t bytes) {
        std::vector<std::pair<std::function<void(Room)>, Room>> served;
        {
            const std::lock_guard lock(mutex_);
            taken_ -= bytes;
            while (!waiting_.empty() && fits(waiting_.front().bytes)) {
                served.emplace_back(std::move(waiting_.front().then), give(waiting_.front().bytes));
                waiting_.pop_front();
            }
        }
        for (auto& [then, room] : served) {
            then(std::move(room));
        }
    }

    const std::uint64_t limit_;
    std::mutex mutex_;
    std::uint64_t taken_ = 0;
    std::deque<Waiter> waiting_;
};

WriteBudget::WriteBudget(std::uint64_t limit) : state_(std::make_shared<State>(limit)) {}

WriteBudget::Room WriteBudget::take(std::uint64_t bytes, std::function<void(Room)> then) {
    return state_->take(bytes, std::move(then));
}

WriteBudget::Room WriteBudget::take_now(std::uint64_t bytes) { return state_->take_now(bytes); }

std::uint64_t WriteBudget::taken() const { return state_->taken(); }

}  // namespace ucxstore

#include "client/operation.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace ucxstore {
namespace {

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last = 0;
    return ++last;
}

}  // namespace

void CompletionQueue::push(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
    if (ids_.size() == 1) {
        fd_.set();
    }
}

std::vector<std::uint64_t> CompletionQueue::drain() {
    const std::lock_guard lock(mutex_);
    fd_.clear();
    return std::exchange(ids_, {});
}

Operation::Operation(std::vector<Item> the_items, double timeout_s,
                     std::shared_ptr<CompletionQueue> queue)
    : id(next_id()),
      items(std::move(the_items)),
      timeout_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(timeout_s, 1e9)))),
      queue_(std::move(queue)),
      deadline_(made_ + timeout_),
      remaining_(items.size()) {}

std::string Operation::late_text() const {
    const auto item = std::ranges::find(items, false, &Item::done);
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g s",
                  std::chrono::duration<double>(timeout_).count());
    return "nothing came for '" + item->key + "' within " + seconds;
}

std::uint64_t Operation::memory_bytes() const {
    std::uint64_t sum = 0;
    for (const Item& item : items) {
        sum += item.memory ? item.memory->size() : 0;
    }
    return sum;
}

std::uint64_t Operation::bytes() const {
    std::uint64_t sum = memory_bytes();
    for (const Item& item : items) {
        sum += item.owned == nullptr ? 0 : item.owned->size();
    }
    return sum;
}

bool Operation::item_done(Item& item) {
    item.done = true;
    return --remaining_ == 0;
}

void Operation::fail(const Error& error) {
    if (!error_) {
        error_ = error;
    }
}

void Operation::complete(bool leaked) {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
        leaked_ = leaked;
        // Under the lock: the waiter may destroy this as soon as it can have it.
        completed_.notify_all();
    }
    if (queue_ != nullptr) {
        queue_->push(id);
    }
}

bool Operation::done() const {
    const std::lock_guard lock(mutex_);
    return done_;
}

bool Operation::wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return completed_.wait_for(lock, time, [this] { return done_; });
}

void Operation::check() const {
    if (error_) {
        throw *error_;
    }
}

}  // namespace ucxstore

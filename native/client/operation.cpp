#include "client/operation.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace ucxstore::client {
namespace {

std::uint64_t next_id() {
    constinit static std::atomic<std::uint64_t> last = 0;
    return ++last;
}

// Made while there is memory.
const base::Error kNoMemory(base::ErrorKind::memory, "not enough memory to say what has failed");

}  // namespace

void CompletionQueue::expect() {
    const base::Lock lock(mutex_);
    if (ids_.capacity() <= expected_) {
        ids_.reserve(2 * expected_ + 8);
    }
    ++expected_;
}

void CompletionQueue::expect_no_more() {
    const base::Lock lock(mutex_);
    --expected_;
}

void CompletionQueue::push(std::uint64_t id) {
    const base::Lock lock(mutex_);
    ids_.push_back(id);
    if (ids_.size() == 1) {
        fd_.set();
    }
}

std::vector<std::uint64_t> CompletionQueue::drain() {
    const base::Lock lock(mutex_);
    auto drained = ids_;  // a copy: the memory stays for those to come
    ids_.clear();
    fd_.clear();
    expected_ -= std::min(expected_, drained.size());
    return drained;
}

Operation::Operation(std::vector<Item> the_items, double timeout_s,
                     std::shared_ptr<CompletionQueue> queue)
    : id(next_id()),
      items(std::move(the_items)),
      timeout_(std::chrono::duration_cast<base::Clock::duration>(
          std::chrono::duration<double>(std::min(timeout_s, 1e9)))),
      queue_(std::move(queue)),
      deadline_(made_ + timeout_),
      remaining_(items.size()) {
    if (queue_ != nullptr) {
        queue_->expect();
    }
}

Operation::~Operation() {
    if (queue_ != nullptr && !done_) {
        queue_->expect_no_more();
    }
}

std::string Operation::waiting_for() const {
    const auto item = std::ranges::find(items, false, &Item::done);
    return item == items.end() ? "" : "'" + item->key + "': ";
}

std::string Operation::late_text() const {
    const auto item = std::ranges::find(items, false, &Item::done);
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g s",
                  std::chrono::duration<double>(timeout_).count());
    return "nothing came for '" + item->key + "' within " + seconds;
}

bool Operation::waits_to_be_sent() const {
    return sends_values() && !went_as_file && std::ranges::all_of(items, [](const Item& item) {
               return item.next == 0 && !item.done && item.memory->size() > 0;
           });
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

void Operation::fail(base::ErrorKind kind, std::initializer_list<std::string_view> text) noexcept {
    if (error_) {
        return;
    }
    try {
        std::string whole;
        for (const std::string_view part : text) {
            whole += part;
        }
        error_.emplace(kind, whole);
    } catch (const std::bad_alloc&) {
        error_ = kNoMemory;
    }
}

void Operation::fail(const base::Error& error) noexcept {
    if (!error_) {
        error_ = error;  // copied without memory: its text is shared
    }
}

void Operation::fail(const std::exception& error,
                     std::initializer_list<std::string_view> before) noexcept {
    const auto* const ours = dynamic_cast<const base::Error*>(&error);
    try {
        std::string whole;
        for (const std::string_view part : before) {
            whole += part;
        }
        fail(ours == nullptr ? base::ErrorKind::memory : ours->kind(), {whole, error.what()});
    } catch (const std::bad_alloc&) {
        fail(kNoMemory);
    }
}

void Operation::complete(bool leaked) {
    if (on_success && !error_ && !leaked) {
        try {
            on_success(*this);
        } catch (const std::exception&) {  // for want of memory
        }
    }
    // Before anybody knows: who has the result may fork, and this thread is not there in a child,
    // where what it still held would stay until the child's end. Unless somebody may still write
    // to that memory.
    if (!leaked) {
        result.reset();
    }
    {
        const base::Lock lock(mutex_);
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
    const base::Lock lock(mutex_);
    return done_;
}

bool Operation::wait_for(std::chrono::milliseconds time) {
    base::UniqueLock lock(mutex_);
    return completed_.wait_for(lock, time, [this]() REQUIRES(mutex_) { return done_; });
}

bool Operation::may_have_changed() const {
    return sends_values() ? !waits_to_be_sent() : removes && requests.empty();
}

void Operation::check() const {
    if (!error_) {
        return;
    }
    const bool lost = error_->kind() == base::ErrorKind::server_lost;
    if ((lost || error_->kind() == base::ErrorKind::timeout) && may_have_changed()) {
        const auto found = std::ranges::find(items, false, &Item::done);
        const std::string& key = (found == items.end() ? items.front() : *found).key;
        throw base::Error(
            lost ? base::ErrorKind::change_lost : base::ErrorKind::change_timeout,
            std::string(error_->what()) + "; '" + key + "' may have its old value or the new one");
    }
    throw *error_;
}

}  // namespace ucxstore::client

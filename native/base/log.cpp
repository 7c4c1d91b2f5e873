#include "base/log.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace ucxstore::base::log {
namespace {

// A megabyte in two vectors, which a process has only once somebody listens.
constexpr std::size_t kCapacity = 1024;

constexpr double kEvictionSeconds = 5;

std::atomic<Queue*> current = nullptr;
std::atomic<double> slow = 0;

double now() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

}  // namespace

// Both have their memory from the beginning, so that push() never allocates.
Queue::Queue(std::size_t capacity) : capacity_(capacity) {
    records_.reserve(capacity);
    taken_.reserve(capacity);
}

// As long as a few records take to be copied. Whoever has the lock may have lost its processor.
bool Queue::try_lock_for_a_moment() {
    constexpr int kTries = 100;
    for (int tries = 0; tries < kTries; ++tries) {
        if (mutex_.try_lock()) {
            return true;
        }
    }
    return false;
}

void Queue::push(const Event& event) {
    bool is_first = false;
    if (event.kind != EventKind::request) {
        const Lock lock(mutex_);
        is_first = append(event);
    } else if (try_lock_for_a_moment()) {
        const Lock lock(mutex_, std::adopt_lock);
        is_first = append(event);
    } else {
        count_dropped();
    }
    if (is_first) {
        wake();
    }
}

bool Queue::append(const Event& event) {
    const bool is_request = event.kind == EventKind::request;
    if (records_.size() >= capacity_ - (is_request ? capacity_ / 4 : 0)) {
        count_dropped();
        return false;
    }
    Record& record = records_.emplace_back();
    record.area = event.area;
    record.level = event.level;
    record.kind = event.kind;
    record.time = now();
    record.peer = event.peer;
    record.key = event.key;
    record.detail = event.detail;
    record.count = event.count;
    record.bytes = event.bytes;
    record.seconds = event.seconds;
    return records_.size() == 1;
}

Queue::Taken Queue::take() {
    const Lock taking(taking_);
    wake_.clear();
    {
        const Lock lock(mutex_);
        records_.swap(taken_);
    }
    Taken taken;
    taken.records = taken_;
    taken_.clear();
    taken.dropped = dropped_.exchange(0);
    return taken;
}

void add(const Event& event) {
    Queue* const queue = current;
    if (queue != nullptr && wants(event.area, event.level)) {
        queue->push(event);
    }
}

Queue& queue() {
    Queue* found = current;
    if (found == nullptr) {
        auto made = std::make_unique<Queue>(kCapacity);
        if (current.compare_exchange_strong(found, made.get())) {
            found = made.release();
        }
    }
    return *found;
}

void listen(int client, int server) {
    queue();
    thresholds[static_cast<std::size_t>(Area::client)] = client;
    thresholds[static_cast<std::size_t>(Area::server)] = server;
}

void set_slow_request(double seconds) { slow = seconds; }

double slow_request() { return slow; }

void forget_in_child() {
    for (auto& threshold : thresholds) {
        threshold = off;
    }
    current = nullptr;  // the parent's: leaked here
}

void Evictions::add(std::uint64_t bytes) {
    if (!wants(Area::server, info)) {
        return;
    }
    ++count_;
    bytes_ += bytes;
    if (now() - reported_ >= kEvictionSeconds) {
        report();
    }
}

void Evictions::report() {
    if (count_ > 0) {
        log::add({.area = Area::server,
                  .level = info,
                  .kind = EventKind::evicted,
                  .detail = cache_,
                  .count = std::exchange(count_, 0),
                  .bytes = std::exchange(bytes_, 0)});
        reported_ = now();
    }
}

}  // namespace ucxstore::base::log

#include "shared/huge_page_maker.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "threads/quiet_thread.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::uint64_t kPiece = Arenas::kHugePage;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which is newer than some headers

constexpr int kCollapseTries = 3;
constexpr int kRefusals = 8;

}  // namespace

HugePageMaker::HugePageMaker(std::chrono::milliseconds settles)
    : settles_(settles), pid_(getpid()) {}

HugePageMaker::~HugePageMaker() {
    if (getpid() != pid_) {
        new std::thread(std::move(thread_));  // the parent's, which a child cannot join
        return;
    }
    {
        const base::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void HugePageMaker::add(const Arena& arena, const Block& block, std::weak_ptr<void> alive) {
    const base::Lock lock(mutex_);
    if (refused_ >= kRefusals || getpid() != pid_) {
        return;
    }
    const TimePoint due = std::chrono::steady_clock::now() + settles_;
    values_.push_back({arena.reference(), block.offset, block.bytes, std::move(alive), due});
    if (!thread_.joinable()) {
        try {
            thread_ = threads::start_quiet_thread(
                "ucxstore-huge", [this] { run(); }, threads::Priority::low);
        } catch (const std::exception&) {  // no thread is to be had: values keep small pages
            values_.clear();
        }
    } else if (values_.size() == 1) {
        changed_.notify_all();
    }
}

bool HugePageMaker::stopped() {
    const base::Lock lock(mutex_);
    return stop_;
}

void HugePageMaker::run() {
    base::UniqueLock lock(mutex_);
    while (!stop_) {
        if (values_.empty()) {
            changed_.wait(lock);
            continue;
        }
        if (const TimePoint due = values_.front().due; due > std::chrono::steady_clock::now()) {
            changed_.wait_until(lock, due);
            continue;
        }
        Value value = std::move(values_.front());
        values_.pop_front();
        lock.unlock();
        collapse(value);
        lock.lock();
        if (refused_ >= kRefusals) {
            values_.clear();
        }
    }
}

void HugePageMaker::collapse(const Value& value) {
    const std::uint64_t end = value.offset + value.bytes;
    for (std::uint64_t at = value.offset / kPiece * kPiece; at < end; at += kPiece) {
        // All of a huge page is memory: what lies beyond the value would be, and count nowhere.
        if (at < value.offset || at + kPiece > end) {
            continue;
        }
        if (value.alive.expired() || stopped()) {
            return;
        }
        bool goes_on = true;
        if (!value.arena->use([&](const Arena& arena) { goes_on = collapse(arena, at); }) ||
            !goes_on) {
            return;
        }
    }
}

bool HugePageMaker::collapse(const Arena& arena, std::uint64_t at) {
    if (arena.is_huge(at / kPiece)) {
        return true;
    }
    bool done = false;
    for (int i = 0; i < kCollapseTries && !done; ++i) {
        done = madvise(arena.data() + at, kPiece, kCollapse) == 0;
        if (!done && errno == EINVAL) {
            break;
        }
    }
    if (done) {
        arena.set_huge(at / kPiece);
    }
    const base::Lock lock(mutex_);
    refused_ = done ? 0 : refused_ + 1;
    return refused_ < kRefusals;
}

}  // namespace ucxstore::shared

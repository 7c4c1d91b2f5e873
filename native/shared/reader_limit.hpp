// A page that a server shows to all its readers: how much of its memory they may hold for as long
// as they like, which changes, and how much they hold. Only the server can write to it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/handle.hpp"

namespace ucxstore::shared {

// What lies in the shared memory.
struct ReaderLimitMemory {
    std::uint64_t magic;
    std::atomic<std::uint64_t> limit;  // bytes
    std::atomic<std::uint64_t> held;   // bytes that any reader has pinned, each counted once
};

constexpr std::uint64_t kReaderLimitMagic = 0x31'64'72'61'6f'62'78'75;  // "uxboard1"

// The server's side. Any thread.
class ReaderLimit {
  public:
    static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

    // Throws Error(memory).
    explicit ReaderLimit(std::uint64_t limit);
    ReaderLimit(const ReaderLimit&) = delete;
    ReaderLimit& operator=(const ReaderLimit&) = delete;
    ~ReaderLimit();

    void set_limit(std::uint64_t bytes) { memory_->limit.store(bytes, std::memory_order_relaxed); }
    void set_held(std::uint64_t bytes) { memory_->held.store(bytes, std::memory_order_relaxed); }
    std::uint64_t held() const { return memory_->held.load(std::memory_order_relaxed); }
    // For readers: they cannot write to it.
    int descriptor() const { return readable_.get(); }

  private:
    base::Fd readable_;
    ReaderLimitMemory* memory_ = nullptr;
};

// A reader's side. Any thread.
class ReaderLimitView {
  public:
    // Maps what a server's descriptor() is. Throws Error(protocol).
    explicit ReaderLimitView(const base::Fd& descriptor);
    ReaderLimitView(const ReaderLimitView&) = delete;
    ReaderLimitView& operator=(const ReaderLimitView&) = delete;
    ~ReaderLimitView();

    std::uint64_t limit() const { return memory_->limit.load(std::memory_order_relaxed); }
    std::uint64_t held() const { return memory_->held.load(std::memory_order_relaxed); }

  private:
    const ReaderLimitMemory* memory_ = nullptr;
};

}  // namespace ucxstore::shared

// A page of memory that a server shares with a client of its host: whether the session goes on, and
// what the client has read by itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/counters.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"

namespace ucxstore::shared {

// What lies in the shared memory. Whatever a client writes there, it only counts wrongly, or finds
// nothing itself any more.
struct SessionWords {
    std::atomic<std::uint64_t> ended;  // 1 once the server has ended the session
    std::atomic<std::uint64_t> gets;   // that the client has answered itself, and their bytes
    std::atomic<std::uint64_t> bytes;
};

// The server's side. Any thread.
class SessionPage final : public base::Seeing {
  public:
    // Throws Error(memory).
    SessionPage();
    ~SessionPage() override;

    // For the client. It is not kept here.
    base::Fd take_descriptor() { return std::move(descriptor_); }
    // From now on the client finds nothing.
    void end() { words_->ended.store(1, std::memory_order_seq_cst); }
    base::SeenCounts seen() const override;

  private:
    base::Fd descriptor_;
    SessionWords* words_ = nullptr;
};

// A client's side. Any thread.
class SessionWatch {
  public:
    // Maps what a server's descriptor is. Throws Error(protocol).
    explicit SessionWatch(const base::Fd& descriptor);
    SessionWatch(const SessionWatch&) = delete;
    SessionWatch& operator=(const SessionWatch&) = delete;
    ~SessionWatch();

    bool ended() const { return words_->ended.load(std::memory_order_acquire) != 0; }
    void count(std::uint64_t bytes) const;

  private:
    SessionWords* words_ = nullptr;
};

// The pages of all sessions of a server. Any thread.
class SessionPages {
  public:
    // Throws Error(memory).
    std::shared_ptr<SessionPage> add();
    // Of all clients, also those that have gone.
    base::SeenCounts counts() const;

  private:
    void drop_gone() REQUIRES(mutex_);

    mutable base::Mutex mutex_;
    // Gone: those that nobody else has any more.
    std::vector<std::shared_ptr<SessionPage>> pages_ GUARDED_BY(mutex_);
    base::SeenCounts before_ GUARDED_BY(mutex_);  // of pages that were dropped
};

}  // namespace ucxstore::shared

// A limit on the bytes that values take.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ucxstore {

// Each value has a share. A value that a reader has pinned keeps its share, and may outlive the
// storage.
class Quota {
  public:
    // `of` names it in messages. What is taken is taken from `within`, too, unless that is nullptr.
    explicit Quota(std::uint64_t limit, std::string of = "memory",
                   std::shared_ptr<Quota> within = nullptr)
        : limit_(limit), of_(std::move(of)), within_(std::move(within)) {}
    // Throws Error(storage) where less than `size` is left, also after reclaim().
    void take(std::uint64_t size);
    // Throws as take() would, and takes nothing.
    void check(std::uint64_t size);
    void give(std::uint64_t size);
    // `reclaim` gives back what is only taken because nobody has looked whether it is still used.
    // On any thread, until the handle goes; also for the quota that this one is within.
    using Reclaim = std::function<void()>;
    std::shared_ptr<void> add_reclaim(Reclaim reclaim);
    void reclaim();
    std::uint64_t limit() const { return limit_; }
    std::uint64_t taken() const { return taken_; }

  private:
    bool try_take(std::uint64_t size);
    [[noreturn]] void refuse(std::uint64_t size) const;
    void add(std::weak_ptr<const Reclaim> reclaim);

    const std::uint64_t limit_;
    const std::string of_;
    const std::shared_ptr<Quota> within_;
    std::atomic<std::uint64_t> taken_ = 0;
    std::mutex mutex_;
    std::vector<std::weak_ptr<const Reclaim>> reclaims_;
};

}  // namespace ucxstore

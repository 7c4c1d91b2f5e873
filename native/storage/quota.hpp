// A limit on the bytes that values take.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace ucxstore {

// Each value has a share. A value that a reader has pinned keeps its share, and may outlive the
// storage.
class Quota {
  public:
    // `of` names it in messages. What is taken is taken from `within`, too, unless that is nullptr.
    explicit Quota(std::uint64_t limit, std::string of = "memory",
                   std::shared_ptr<Quota> within = nullptr)
        : limit_(limit), of_(std::move(of)), within_(std::move(within)) {}
    // Throws Error(storage) where less than `size` is left.
    void take(std::uint64_t size);
    void give(std::uint64_t size);
    std::uint64_t limit() const { return limit_; }
    std::uint64_t taken() const { return taken_; }

  private:
    const std::uint64_t limit_;
    const std::string of_;
    const std::shared_ptr<Quota> within_;
    std::atomic<std::uint64_t> taken_ = 0;
};

}  // namespace ucxstore

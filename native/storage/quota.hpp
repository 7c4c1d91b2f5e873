// How many bytes values take, and may take.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace ucxstore {

// Each value holds a share of it, and outlives the
// storage where a reader has it pinned.
class Quota {
  public:
    // `of` is what messages call it. What is taken is also taken of `within`, where there is that.
    explicit Quota(std::uint64_t limit, std::string of = "memory",
                   std::shared_ptr<Quota> within = nullptr)
        : limit_(limit), of_(std::move(of)), within_(std::move(within)) {}
    // Throws Error(storage) where that is more than is left.
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

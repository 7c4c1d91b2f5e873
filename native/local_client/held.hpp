// What this process holds of a server's memory for as long as it likes, which is bounded: views,
// and values that are mapped into arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/around_forks.hpp"
#include "base/mutex.hpp"
#include "shared/pins.hpp"
#include "shared/reader_limit.hpp"

namespace ucxstore::local_client {

// Any thread. A forked child has what its parent has, and counts on from there.
class HeldValues final : public std::enable_shared_from_this<HeldValues>,
                         private base::AroundForks {
  public:
    // `tell` is called when the server should look again at what is held: so much has changed. It
    // is not called in a forked child, which has no session of its own for it.
    HeldValues(std::shared_ptr<shared::Pins> pins,
               std::shared_ptr<const shared::ReaderLimitView> reader_limit,
               std::function<void()> tell);
    ~HeldValues() override;

    // A share of what is held; it ends with this.
    class Hold {
      public:
        Hold(std::shared_ptr<HeldValues> held, shared::Place place)
            : held_(std::move(held)), place_(place) {}
        Hold(Hold&& other) noexcept = default;
        Hold& operator=(Hold&&) = delete;
        ~Hold() {
            if (held_ != nullptr) {
                held_->remove(place_);
            }
        }

      private:
        std::shared_ptr<HeldValues> held_;
        shared::Place place_;
    };

    // Of a block of so many bytes, which is pinned already. nullopt where it is more than the
    // server lets its clients hold, or too many pins would be used for that.
    std::optional<Hold> add(shared::Place place, std::uint64_t bytes);

  private:
    struct Block {
        std::uint64_t bytes;
        std::uint64_t holds;
    };

    void before_fork() noexcept override ACQUIRE(mutex_) { mutex_.lock(); }
    void in_parent() noexcept override RELEASE(mutex_) { mutex_.unlock(); }
    void in_child() noexcept override RELEASE(mutex_) {
        tell_ = nullptr;
        mutex_.unlock();
    }
    void remove(shared::Place place);
    bool may_add(std::uint64_t bytes) const REQUIRES(mutex_);
    // Whether the server should be told.
    bool has_changed() REQUIRES(mutex_);

    const std::shared_ptr<shared::Pins> pins_;
    const std::shared_ptr<const shared::ReaderLimitView> reader_limit_;
    std::function<void()> tell_;
    base::Mutex mutex_;
    std::unordered_map<shared::Place, Block> blocks_ GUARDED_BY(mutex_);
    std::uint64_t holds_ GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;  // of the blocks
    std::uint64_t told_ GUARDED_BY(mutex_) = 0;   // of them, when the server was told
};

}  // namespace ucxstore::local_client

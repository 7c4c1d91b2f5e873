// A cache of values by key, up to a number of bytes, with S3-FIFO eviction: J. Yang, Y. Zhang,
// Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023. A new
// value enters a small queue. It moves to the main queue only if it is read again while it is
// there, or soon after its eviction. So a scan does not empty the main queue.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/region.hpp"

namespace ucxstore {

class Cache {
  public:
    using Value = std::shared_ptr<const Sized>;
    using Clock = std::chrono::steady_clock;
    using Now = std::function<Clock::time_point()>;

    // Other processes that see values of the cache, and use their memory.
    class Readers {
      public:
        virtual ~Readers() = default;
        // The bytes that the value takes, or will take once they see it.
        virtual std::uint64_t bytes_of(const std::string& key, const Sized& value) const = 0;
        // They do not find the value any more.
        virtual void withdraw(const Sized& value) = 0;
        // How often they have read it since the last call.
        virtual unsigned take_uses(const Sized& value) = 0;
        // Bytes of what was withdrawn, and may still be read.
        virtual std::uint64_t waiting() const = 0;
        // Frees what is read no more.
        virtual void sweep() = 0;
    };

    // `capacity` bounds the bytes of values and of what it takes to keep them. Values that were
    // evicted or removed while they are being sent count, too, and only they may exceed it. `now`
    // is the clock by which values age; `name` is for the log. What `readers`, if any, still read
    // of evicted values counts, too, and is in the place of values: it does not exceed the
    // capacity.
    explicit Cache(std::uint64_t capacity, Now now = Clock::now, const char* name = "the cache",
                   std::unique_ptr<Readers> readers = nullptr)
        : capacity_(capacity),
          now_(std::move(now)),
          readers_(std::move(readers)),
          evictions_(name) {}

    // nullptr where the key has none. Counts as a use.
    Value find(const std::string& key);
    // The entry with the largest key that is not after `key`: that key and its value; {} for none.
    std::pair<std::string, Value> find_last(const std::string& key);
    // Replaces the value of the key. A value too large for the cache is not kept.
    void put(const std::string& key, Value value);
    // The same as find(), but is no use.
    Value peek(const std::string& key) const;
    // Puts what is equal to the value of the key, but lies elsewhere, in its place.
    void exchange(const std::string& key, Value equal);
    // When the value was put or confirmed last; nullopt where the key has none.
    std::optional<Clock::time_point> confirmed(const std::string& key) const;
    // The time since put() or the last confirm(); nullopt where the key has no value.
    std::optional<Clock::duration> age(const std::string& key) const;
    // Makes the value's age 0: it is still what the source has.
    void confirm(const std::string& key);
    void remove(const std::string& key);
    void remove_prefix(const std::string& prefix);
    void clear();

    std::uint64_t bytes() const { return held() + (readers_ == nullptr ? 0 : readers_->waiting()); }
    std::uint64_t size() const { return slots_.size(); }
    std::uint64_t evicted() const { return evicted_; }

  private:
    struct Slot;
    using Slots = std::map<std::string, Slot, std::less<>>;
    using Queue = std::list<Slots::iterator>;  // the newest in front
    struct Slot {
        Value value;
        std::uint64_t charge = 0;
        Clock::time_point confirmed;
        unsigned uses = 0;
        bool in_main = false;
        Queue::iterator at;
    };
    // A key that was lately evicted from the small queue, by its hash.
    struct Ghost {
        std::size_t hash;
        std::uint64_t charge;
    };

    std::uint64_t ghost_bytes() const;
    // Bytes of values, and of what was evicted while it is being sent.
    std::uint64_t held() const { return small_bytes_ + main_bytes_ + ghost_bytes() + left_bytes_; }
    void count_uses(Slot& slot);
    void enter(Slots::iterator slot, bool in_main);
    void leave(Slots::iterator slot);
    void drop(Slots::iterator slot);
    bool make_room(std::uint64_t charge);
    bool make_room_beside_readers(std::uint64_t charge);
    bool evict_to(std::uint64_t bytes);
    void pass_small(bool counts);
    void pass_main(bool counts);
    void evict(Slots::iterator slot);
    void remember(const std::string& key, std::uint64_t charge);
    bool recall(const std::string& key);
    void sweep();

    const std::uint64_t capacity_;
    const Now now_;
    const std::unique_ptr<Readers> readers_;
    Slots slots_;
    Queue small_;
    Queue main_;
    std::uint64_t small_bytes_ = 0;
    std::uint64_t main_bytes_ = 0;
    std::list<Ghost> ghosts_;
    std::unordered_map<std::size_t, std::list<Ghost>::iterator> ghost_of_;
    std::uint64_t ghost_charge_ = 0;
    // Values that were evicted or removed while they were being sent, and their charge.
    std::vector<std::pair<std::weak_ptr<const Sized>, std::uint64_t>> left_;
    std::uint64_t left_bytes_ = 0;
    std::uint64_t evicted_ = 0;
    log::Evictions evictions_;
};

}  // namespace ucxstore

// A cache of values by key, up to a number of bytes, that evicts by S3-FIFO (storage/s3_fifo.hpp).
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "memory/region.hpp"
#include "storage/s3_fifo.hpp"

namespace ucxstore::cache {

class Cache : private storage::S3Fifo::Owner {
  public:
    using Value = std::shared_ptr<const memory::Sized>;
    using Clock = std::chrono::steady_clock;
    using Now = std::function<Clock::time_point()>;

    // Other processes that see values of the cache, and use their memory.
    class Readers {
      public:
        virtual ~Readers() = default;
        // The bytes that a value of this size takes, or will take once they see it.
        virtual std::uint64_t bytes_of(const std::string& key, std::uint64_t size) const = 0;
        // They do not find the value any more.
        virtual void withdraw(const memory::Sized& value) = 0;
        // How often they have read it since the last call.
        virtual unsigned take_uses(const memory::Sized& value) = 0;
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
          order_(capacity),
          evictions_(name) {}

    // nullptr where the key has none. Counts as a use.
    Value find(const std::string& key);
    // The entry with the largest key that is not after `key`: that key and its value; {} for none.
    std::pair<std::string, Value> find_last(const std::string& key);
    // Replaces the value of the key. A value too large for the cache is not kept.
    void put(const std::string& key, Value value);
    // Evicts until a value of so many bytes has room, if that can be: one that is about to be made.
    void make_room_for(const std::string& key, std::uint64_t bytes);
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
    std::uint64_t evicted_bytes() const { return evicted_bytes_; }

  private:
    struct Slot : storage::S3Fifo::Entry {
        Value value;
        Clock::time_point confirmed;
    };
    using Slots = std::map<std::string, Slot, std::less<>>;

    static const Slot& slot_of(const storage::S3Fifo::Entry& entry) {
        return static_cast<const Slot&>(entry);
    }
    // What is being sent is not evicted.
    bool is_busy(const storage::S3Fifo::Entry& entry) const override {
        return slot_of(entry).value.use_count() > 1;
    }
    unsigned take_uses(const storage::S3Fifo::Entry& entry) override {
        return readers_ == nullptr ? 0 : readers_->take_uses(*slot_of(entry).value);
    }

    // Bytes of values, and of what was evicted while it is being sent.
    std::uint64_t held() const { return order_.bytes() + order_.ghost_bytes() + left_bytes_; }
    void drop(Slots::iterator slot);
    std::uint64_t charge_of(const std::string& key, std::uint64_t bytes) const;
    bool make_room(std::uint64_t charge);
    bool make_room_beside_readers(std::uint64_t charge);
    bool evict_to(std::uint64_t bytes);
    void sweep();

    const std::uint64_t capacity_;
    const Now now_;
    const std::unique_ptr<Readers> readers_;
    Slots slots_;
    storage::S3Fifo order_;  // of all slots
    // Values that were evicted or removed while they were being sent, and their charge.
    std::vector<std::pair<std::weak_ptr<const memory::Sized>, std::uint64_t>> left_;
    std::uint64_t left_bytes_ = 0;
    std::uint64_t evicted_ = 0;
    std::uint64_t evicted_bytes_ = 0;
    base::log::Evictions evictions_;
};

}  // namespace ucxstore::cache

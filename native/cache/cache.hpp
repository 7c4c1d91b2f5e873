// Values that were read, up to a number of bytes. Which of them go is decided by S3-FIFO: J. Yang,
// Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO queues are all you need for cache eviction", SOSP
// 2023. What is read once passes through a small queue; only what is asked for again while it is
// there, or soon after it has gone, gets to the main one, so that a scan does not empty that.
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
    using Value = std::shared_ptr<const Region>;
    using Clock = std::chrono::steady_clock;
    using Now = std::function<Clock::time_point()>;

    // Bytes of values and of what it takes to keep them, those that have left but are still being
    // sent included. Only these last may exceed it. `now` tells the time, by which values age;
    // `name` is for the log.
    explicit Cache(std::uint64_t capacity, Now now = Clock::now, const char* name = "the cache")
        : capacity_(capacity), now_(std::move(now)), evictions_(name) {}

    // nullptr where there is none. It counts as a use.
    Value find(const std::string& key);
    // The same of the last key that is not behind this one, with its name; {} where there is none.
    std::pair<std::string, Value> find_last(const std::string& key);
    // Takes the place of what the key has. What is too large for the cache is not kept.
    void put(const std::string& key, Value value);
    // How long ago it was put, or last confirmed to be what it should; nullopt where there is none.
    std::optional<Clock::duration> age(const std::string& key) const;
    void confirm(const std::string& key);
    void remove(const std::string& key);
    void remove_prefix(const std::string& prefix);
    void clear();

    std::uint64_t bytes() const { return small_bytes_ + main_bytes_ + ghost_bytes() + left_bytes_; }
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
    // A key that has left the small queue lately, by its hash.
    struct Ghost {
        std::size_t hash;
        std::uint64_t charge;
    };

    std::uint64_t ghost_bytes() const;
    void enter(Slots::iterator slot, bool in_main);
    void leave(Slots::iterator slot);
    void drop(Slots::iterator slot);
    bool make_room(std::uint64_t charge);
    void pass_small();
    void pass_main();
    void evict(Slots::iterator slot);
    void remember(const std::string& key, std::uint64_t charge);
    bool recall(const std::string& key);
    void sweep();

    const std::uint64_t capacity_;
    const Now now_;
    Slots slots_;
    Queue small_;
    Queue main_;
    std::uint64_t small_bytes_ = 0;
    std::uint64_t main_bytes_ = 0;
    std::list<Ghost> ghosts_;
    std::unordered_map<std::size_t, std::list<Ghost>::iterator> ghost_of_;
    std::uint64_t ghost_charge_ = 0;
    std::vector<std::pair<std::weak_ptr<const Region>, std::uint64_t>> left_;  // but are being sent
    std::uint64_t left_bytes_ = 0;
    std::uint64_t evicted_ = 0;
    log::Evictions evictions_;
};

}  // namespace ucxstore

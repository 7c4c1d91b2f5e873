// A limit on the bytes that values take.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "shared/arenas.hpp"
#include "storage/write_budget.hpp"

namespace ucxstore::storage {

// A value has no room.
class NoRoomError : public base::Error {
  public:
    explicit NoRoomError(const std::string& message)
        : base::Error(base::ErrorKind::storage, message) {}
};

// Each value has a share. A value that a reader has pinned keeps its share, and may outlive the
// storage.
class Quota : public shared::ArenaBound {
  public:
    static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

    // `of` names it in messages. What is taken is taken from `within`, too, unless that is nullptr.
    explicit Quota(std::uint64_t limit, std::string of = "memory",
                   std::shared_ptr<Quota> within = nullptr)
        : Quota(limit, std::move(of), std::move(within), 0, {}) {}
    // A limit of memory itself: what values need besides their bytes counts, and so does what
    // arenas do not give back. A part of it is kept for values that replace others. `hint` follows
    // the text of a refusal.
    static std::shared_ptr<Quota> of_memory(std::uint64_t limit, std::string hint = {});

    // What a value is to take.
    struct Amount {
        std::uint64_t value = 0;   // its bytes
        std::uint64_t more = 0;    // what it needs besides; only of memory itself
        bool replaces = false;     // another value
        std::uint64_t reused = 0;  // those of them that its block has taken; see ArenaBound

        std::uint64_t all() const { return value + more - reused; }
    };
    // What is done where there is no room. `gently`: nobody loses anything, and no value goes.
    enum class Pressure { gently, fully };
    // Throws NoRoomError where less than that is left, also after that.
    void take(const Amount& amount, Pressure pressure = Pressure::fully);
    void take(std::uint64_t size) { take({.value = size}); }
    // Throws as take() would, and takes nothing. What arenas do not give back is only counted
    // where that is said: the value may come to lie there.
    enum class Counting { without_idle, with_idle };
    void check(const Amount& amount, Counting counting = Counting::without_idle,
               Pressure pressure = Pressure::fully);
    void check(std::uint64_t size) { check({.value = size}); }
    // The same for what is no value, also of what is kept for those that replace others, and
    // without reclaim(): false in place of an exception, or in any case.
    bool try_take(std::uint64_t size) { return try_take({.value = size, .replaces = true}); }
    void take_anyway(std::uint64_t size) { taken_ += size; }
    // Whether there is room for it or not.
    void take_anyway(const Amount& amount);
    void give(const Amount& amount);
    void give(std::uint64_t size) { give({.value = size}); }

    // `reclaim` gives back what is only taken because nobody has looked whether it is still used,
    // as somebody lacks so many bytes; with `needed`, also what is kept to be faster. On any
    // thread, until the handle goes; also for the quota that this one is within.
    using Reclaim = std::function<void(std::uint64_t bytes, bool needed)>;
    std::shared_ptr<void> add_reclaim(Reclaim reclaim);
    void reclaim(std::uint64_t bytes, bool needed = false);
    // `shed` gives up values of about so many bytes, if there are any that may go, and what is
    // free thereby; false for none.
    // On any thread, until the handle goes.
    using Shed = std::function<bool(std::uint64_t bytes)>;
    std::shared_ptr<void> set_shed(Shed shed);
    // Has that done.
    bool shed(std::uint64_t bytes);
    // From now on, arenas take no more pages where less than that is left: for what is in none.
    void keep_from_arenas(std::uint64_t bytes) { kept_from_arenas_ = bytes; }

    std::uint64_t limit() const { return limit_; }
    std::uint64_t taken() const { return taken_; }
    // What is left for values that replace none.
    std::uint64_t room() const { return limit_ - std::min(limit_, taken_ + kept()); }
    // What is taken, what arenas do not give back, and what others keep of arenas that are gone.
    std::uint64_t used() const;
    // Room for large values on their way, as they are announced: so many bytes as there may be at
    // all. To be taken before there is an arena for one.
    WriteBudget& writes() { return writes_; }
    // The limit of memory itself that this is, or is within; nullptr for none.
    static std::shared_ptr<Quota> memory_of(const std::shared_ptr<Quota>& quota);

    bool has_room(std::uint64_t fresh) const override;
    bool try_touch(std::uint64_t fresh, std::uint64_t used) override;
    void give_reused(std::uint64_t bytes) override { taken_ -= bytes; }
    void add_idle(std::int64_t bytes) override { idle_ += bytes; }
    const std::shared_ptr<shared::Leftovers>& leftovers() const override { return leftovers_; }
    std::uint64_t room_for_readers() const override;
    void keep_for_readers(std::int64_t bytes) override { kept_ += bytes; }

  private:
    Quota(std::uint64_t limit, std::string of, std::shared_ptr<Quota> within, std::uint64_t reserve,
          std::string hint)
        : limit_(limit),
          of_(std::move(of)),
          within_(std::move(within)),
          reserve_(reserve),
          hint_(std::move(hint)) {}
    // The bytes that count here.
    std::uint64_t counted(const Amount& amount) const {
        return reserve_ > 0 ? amount.all() : amount.value;
    }
    std::uint64_t idle() const;
    // What values that replace none must leave free.
    std::uint64_t kept() const;
    bool has_room(const Amount& amount, std::uint64_t taken, std::uint64_t idle) const;
    // The bytes that has_room() would have to find free besides.
    std::uint64_t lacking(const Amount& amount) const;
    bool try_take(const Amount& amount);
    template <typename Fits>
    bool fits_after_reclaim(const Amount& amount, Pressure pressure, Fits fits);
    [[noreturn]] void refuse(const Amount& amount) const;
    void add(std::weak_ptr<const Reclaim> reclaim);

    const std::uint64_t limit_;
    const std::string of_;
    const std::shared_ptr<Quota> within_;
    const std::uint64_t reserve_;  // 0 where it is no limit of memory itself
    const std::string hint_;
    std::atomic<std::uint64_t> taken_ = 0;
    std::atomic<std::int64_t> idle_ = 0;
    std::atomic<std::int64_t> kept_ = 0;  // for replacing what readers hold
    std::atomic<std::uint64_t> kept_from_arenas_ = 0;
    const std::shared_ptr<shared::Leftovers> leftovers_ = std::make_shared<shared::Leftovers>();
    WriteBudget writes_{limit_};
    base::Mutex mutex_;
    std::vector<std::weak_ptr<const Reclaim>> reclaims_ GUARDED_BY(mutex_);
    std::weak_ptr<const Shed> shed_ GUARDED_BY(mutex_);
};

}  // namespace ucxstore::storage

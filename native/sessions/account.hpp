// Accounts: what the server holds for a peer and does for it, by session and by origin. Everything
// that a peer makes it hold or do is charged here before, and has one table of limits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/mutex.hpp"
#include "storage/quota.hpp"

namespace ucxstore::sessions {

// What can be held for a peer.
enum class Held : std::uint8_t {
    gets,           // that wait for their turn
    get_bytes,      // of keys and selections of these
    fetches,        // gets that wait for a source
    calls,          // other requests that wait for a storage, a source or a thread
    values,         // that arrive
    small_values,   // bytes of those that wait for a source, and came with their message
    request_bytes,  // of messages that came before there was room for what they ask, or others
    reply_bytes,    // of replies that the client has not taken, but for pinned values
    read_bytes,     // read from files to be sent
    fetched_bytes,  // brought by a source, to be sent
    descriptors,    // that the client has passed, are not used, and are still to be closed
    pin_tables,     // through which it pins values
    spaces,         // scratch spaces that it has begun
    pinned_bytes,   // of values that are only there because it has pinned them
};

// The limits of one kind.
struct Limit {
    const char* name;  // in statistics
    const char* what;  // in messages and in docs/requests.md
    bool is_bytes;
    bool is_memory;  // whether it counts for the limit of memory
    // So much each session may hold, whatever other origins do; and one thing of that size in any
    // case: so it always gets on. 0 for what may outlive a session: else whoever connects again and
    // again would hold any number of them.
    std::uint64_t always;
    std::uint64_t of_session;
    // Beyond this, and beyond what is left but for an eighth, kept for origins that have less than
    // an eighth, an origin gets nothing.
    std::uint64_t of_origin;
    std::uint64_t of_all;
};

inline constexpr std::size_t kHeldKinds = 14;
using Limits = std::array<Limit, kHeldKinds>;

// By Held. NOLINTBEGIN(readability-magic-numbers)
inline constexpr Limits kLimits{{
    // name, what, bytes, memory, always, of a session, of an origin, of all
    {"gets", "gets that wait", false, false, 1024, 131'072, 262'144, 2'097'152},
    {"get_bytes", "keys and selections of these", true, true, 512ull << 10, 32ull << 20,
     64ull << 20, 256ull << 20},
    {"fetches", "gets that wait for a source", false, false, 0, 128, 16'384, 131'072},
    {"calls", "other requests under way", false, false, 0, 256, 4096, 65'536},
    {"values", "values that arrive", false, false, 16, 1024, 2'097'152, 4'194'304},
    {"small_values", "small values that wait for a source", true, true, 0, 8ull << 20, 512ull << 20,
     2ull << 30},
    {"request_bytes", "requests, and parts of values, that wait for room or for others", true, true,
     512ull << 10, 64ull << 20, 256ull << 20, 512ull << 20},
    {"reply_bytes", "replies that the client has not taken, but for values", true, true,
     512ull << 10, 4ull << 20, 32ull << 20, 256ull << 20},
    {"read_bytes", "values read from files to be sent", true, true, 2ull << 20, 16ull << 20,
     128ull << 20, 512ull << 20},
    {"fetched_bytes", "values that a source has brought, to be sent", true, true, 4ull << 20,
     256ull << 20, 1ull << 30, 4ull << 30},
    {"descriptors", "passed descriptors that are still to be closed", false, false, 0, 64, 256,
     2048},
    {"pin_tables", "tables of pins", false, false, 0, 64, 8192, 16'384},
    {"spaces", "scratch spaces that it has begun", false, false, 0, 256, 1024, 4096},
    {"pinned_bytes", "replaced and removed values that it has pinned", true, false, 0, 1ull << 30,
     2ull << 30, 16ull << 30},
}};
// NOLINTEND(readability-magic-numbers)

class Account;

// What one thing has of an account, until it goes; on any thread.
class Hold {
  public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : account_(std::move(other.account_)),
          amount_(std::exchange(other.amount_, 0)),
          what_(other.what_) {}
    Hold& operator=(Hold&& other) noexcept {
        std::swap(account_, other.account_);
        std::swap(amount_, other.amount_);
        std::swap(what_, other.what_);
        return *this;
    }
    ~Hold() { shrink(0); }

    std::uint64_t amount() const { return amount_; }
    // Gives back all but so much.
    void shrink(std::uint64_t amount);

  private:
    friend class Account;
    Hold(std::shared_ptr<Account> account, Held what, std::uint64_t amount)
        : account_(std::move(account)), amount_(amount), what_(what) {}

    std::shared_ptr<Account> account_;
    std::uint64_t amount_ = 0;
    Held what_ = Held::gets;
};

// The accounts of a server. Any thread.
class Ledger : public std::enable_shared_from_this<Ledger> {
  public:
    // What accounts hold of memory is taken from `memory`, unless that is nullptr.
    explicit Ledger(std::shared_ptr<storage::Quota> memory = nullptr,
                    const Limits& limits = kLimits)
        : memory_(std::move(memory)), limits_(limits) {}
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    // Opens an account for a session of this origin (places.hpp).
    std::shared_ptr<Account> open(const std::string& origin);

    const Limit& limit(Held what) const { return limits_[static_cast<std::size_t>(what)]; }

    // Of each origin that has sessions: those that hold and have worked most first.
    std::vector<base::AccountCounts> origins() const;
    // What all sessions hold.
    std::uint64_t held(Held what) const;

  private:
    friend class Account;

    using Amounts = std::array<std::uint64_t, kHeldKinds>;
    struct Origin {
        std::string name;
        Amounts taken{};             // under the lock
        std::uint64_t sessions = 0;  // under the lock
        std::atomic<std::uint64_t> worked = 0;
    };

    // How much somebody needs it: it is only asked, and nothing taken for it that others have;
    // where there is room; as far as the origin may have it; or in any case.
    enum class Need : std::uint8_t { asked, room, own, anyway };
    enum class Found : std::uint8_t { room, none, no_memory };

    // Takes so much more for a session; false where there is no room.
    bool take(Origin& origin, Held what, std::uint64_t amount, Need need);
    Found try_take(Origin& origin, Held what, std::uint64_t amount, Need need);
    void give(Origin& origin, Held what, std::uint64_t amount);
    void close(const Account& account);

    const std::shared_ptr<storage::Quota> memory_;
    const Limits limits_;
    mutable base::Mutex mutex_;
    std::map<std::string, std::shared_ptr<Origin>> origins_ GUARDED_BY(mutex_);
    std::vector<const Account*> accounts_ GUARDED_BY(mutex_);
    Amounts taken_ GUARDED_BY(mutex_){};
};

// The account of a session, and part of its origin's. What is held may go on any thread; the rest
// is the session's thread's.
class Account : public base::Accounted, public std::enable_shared_from_this<Account> {
  public:
    // Of work, a unit is about a nanosecond of the server's time. After so many, others get their
    // turn.
    static constexpr std::uint64_t kTurn = 100'000;
    // What a session takes of its origin's share at a time.
    std::uint64_t step(Held what) const;
    // Who holds no more than that has taken none, and it is not counted for others.
    std::uint64_t uncounted(Held what) const;

    Account(std::shared_ptr<Ledger> ledger, std::shared_ptr<Ledger::Origin> origin);
    ~Account() override;

    // Charges it, until the Hold goes; nullopt where there is no room.
    std::optional<Hold> hold(Held what, std::uint64_t amount) {
        return add(what, amount, false) ? std::optional(Hold(shared_from_this(), what, amount))
                                        : std::nullopt;
    }
    // The same for what is there already: it has room, or counts beyond its limit.
    Hold hold_anyway(Held what, std::uint64_t amount) {
        add(what, amount, true);
        return {shared_from_this(), what, amount};
    }
    // The same without a Hold: for remove().
    bool add(Held what, std::uint64_t amount, bool anyway = false) {
        return add(what, amount, anyway ? Ledger::Need::anyway : Ledger::Need::room);
    }
    void remove(Held what, std::uint64_t amount);

    std::uint64_t held(Held what) const { return part(what).held; }
    // Whether hold() would find room.
    bool has_room(Held what, std::uint64_t amount) {
        const bool room = add(what, amount, Ledger::Need::asked);
        if (room) {
            remove(what, amount);
        }
        return room;
    }
    // Whether the session holds as much as it may. One that holds nothing gets on.
    bool is_full(Held what) {
        const Limit& limit = ledger_->limit(what);
        const std::uint64_t now = held(what);
        return now > 0 && (now >= limit.of_session || !has_room(what, 1));
    }
    const Limit& limit(Held what) const { return ledger_->limit(what); }

    // Counts work of the session, which is done in turns.
    void work(std::uint64_t units) { turn_ += units; }
    std::uint64_t turn() const { return turn_; }
    bool turn_is_over() const { return turn_ >= kTurn; }
    // Ends a turn that has taken so long, and returns its units: what was worked, or the time.
    std::uint64_t end_turn(base::Clock::duration took = {});
    std::uint64_t worked() const { return worked_; }
    const std::string& origin() const { return origin_->name; }
    base::AccountCounts counts() const override;

  private:
    friend class Ledger;

    struct Part {
        std::atomic<std::uint64_t> held = 0;
        std::atomic<std::uint64_t> taken = 0;  // of the ledger; changed under its lock
    };
    Part& part(Held what) { return parts_[static_cast<std::size_t>(what)]; }
    const Part& part(Held what) const { return parts_[static_cast<std::size_t>(what)]; }
    bool add(Held what, std::uint64_t amount, Ledger::Need need);
    bool take_more(Held what, std::uint64_t held, Ledger::Need need);
    void give_back(Held what);

    const std::shared_ptr<Ledger> ledger_;
    const std::shared_ptr<Ledger::Origin> origin_;
    std::array<Part, kHeldKinds> parts_;
    std::uint64_t turn_ = 0;
    std::atomic<std::uint64_t> worked_ = 0;
};

}  // namespace ucxstore::sessions

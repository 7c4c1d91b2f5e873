// Turns: which session of a thread works next, and for how long.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "sessions/account.hpp"

namespace ucxstore::sessions {

// The origin that has worked least on this thread comes first, and of its sessions the one that
// has. Who had nothing to do meanwhile has saved nothing: it counts as the one that comes first, so
// it waits for one turn of another at the most. On one thread.
class Turns {
  public:
    // So long a session works, and then another one.
    static constexpr std::chrono::nanoseconds kTurn{Account::kTurn};

    class Seat;

    // Gives turns to those that want one, for about the time of one. Whether others are left.
    bool run();
    bool empty() const { return wanting_.empty(); }

  private:
    struct Origin {
        std::uint64_t used = 0;
        std::uint64_t wanting = 0;  // sessions
        std::uint64_t least = 0;    // used by the session that came last
    };

    Seat& take_next();

    std::map<std::string, std::weak_ptr<Origin>> origins_;
    std::size_t seats_ = 0;
    std::vector<Seat*> wanting_;
    std::uint64_t least_ = 0;  // used by the origin that came last
};

// A session's.
class Turns::Seat {
  public:
    // Does some of what waits, until is_over(); true if there is more to do at once.
    using Work = std::function<bool()>;
    Seat(Turns& turns, std::shared_ptr<Account> account, Work work);
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;
    ~Seat();

    // Whether the session is to leave the rest for its next turn.
    bool is_over() const {
        return account_->turn() >= Account::kTurn || base::Clock::now() >= end_;
    }
    // Asks for a turn.
    void want();
    // Lets the session work until then without a turn, as something has come for it.
    void work_until(base::TimePoint end) { end_ = end; }
    // Charges what was worked so.
    std::uint64_t charge(base::Clock::duration took);
    Account& account() const { return *account_; }

  private:
    friend class Turns;

    Turns& turns_;
    const std::shared_ptr<Account> account_;
    const Work work_;
    const std::shared_ptr<Origin> origin_;
    std::uint64_t used_ = 0;
    bool wants_ = false;
    base::TimePoint end_{};
};

}  // namespace ucxstore::sessions

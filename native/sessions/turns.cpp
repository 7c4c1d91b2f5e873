#include "sessions/turns.hpp"

#include <algorithm>
#include <utility>

namespace ucxstore::sessions {

Turns::Seat::Seat(Turns& turns, std::shared_ptr<Account> account, Work work)
    : turns_(turns), account_(std::move(account)), work_(std::move(work)), origin_([&] {
          std::weak_ptr<Origin>& known = turns.origins_[account_->origin()];
          auto origin = known.lock();
          if (origin == nullptr) {
              known = origin = std::make_shared<Origin>();
          }
          return origin;
      }()) {
    turns_.wanting_.reserve(turns_.seats_ + 1);  // so want() needs no memory
    ++turns_.seats_;
}

Turns::Seat::~Seat() {
    --turns_.seats_;
    if (wants_) {
        std::erase(turns_.wanting_, this);
        --origin_->wanting;
    }
    if (origin_.use_count() == 1) {
        turns_.origins_.erase(account_->origin());
    }
}

void Turns::Seat::want() {
    if (wants_) {
        return;
    }
    turns_.wanting_.push_back(this);
    wants_ = true;
    if (origin_->wanting++ == 0) {
        origin_->used = std::max(origin_->used, turns_.least_);
    }
    used_ = std::max(used_, origin_->least);
}

std::uint64_t Turns::Seat::charge(base::Clock::duration took) {
    const std::uint64_t used = account_->end_turn(took);
    used_ += used;
    origin_->used += used;
    return used;
}

Turns::Seat& Turns::take_next() {
    const auto next = std::ranges::min_element(
        wanting_, {}, [](const Seat* seat) { return std::pair(seat->origin_->used, seat->used_); });
    Seat& seat = **next;
    *next = wanting_.back();
    wanting_.pop_back();
    seat.wants_ = false;
    --seat.origin_->wanting;
    least_ = seat.origin_->used;
    seat.origin_->least = seat.used_;
    return seat;
}

bool Turns::run() {
    if (wanting_.empty()) {
        return false;
    }
    base::TimePoint now = base::Clock::now();
    const base::TimePoint end = now + kTurn;
    base::Clock::duration before = base::worked();
    std::uint64_t used = 0;
    while (!wanting_.empty() && now < end && used < Account::kTurn) {
        Seat& seat = take_next();
        seat.end_ = now + kTurn;
        const bool more = seat.work_();
        const base::Clock::duration after = base::worked();
        used += seat.charge(after - std::exchange(before, after));
        if (more) {
            seat.want();
        }
        now = base::Clock::now();
    }
    return !wanting_.empty();
}

}  // namespace ucxstore::sessions

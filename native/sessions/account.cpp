#include "sessions/account.hpp"

#include <algorithm>

namespace ucxstore::sessions {
namespace {

// This part of a limit is kept for origins that have less than that of it.
constexpr std::uint64_t kKept = 8;

// A session takes its origin's share in so many steps, and of memory in steps of this size. The
// first step is not counted: of each kind of memory it is less than a session takes itself.
constexpr std::uint64_t kSteps = 64;
constexpr std::uint64_t kMemoryStep = 16ull << 10;

base::AccountCounts counts_of(const std::string& origin, std::uint64_t worked,
                              const std::array<std::uint64_t, kHeldKinds>& held) {
    base::AccountCounts counts{origin, 1, static_cast<double>(worked) * 1e-9, {}};
    for (std::size_t i = 0; i < kHeldKinds; ++i) {
        if (held[i] > 0) {
            counts.held.emplace_back(kLimits[i].name, held[i]);
        }
    }
    return counts;
}

}  // namespace

void Hold::shrink(std::uint64_t amount) {
    if (account_ != nullptr && amount < amount_) {
        account_->remove(what_, amount_ - amount);
        amount_ = amount;
        if (amount == 0) {
            account_.reset();
        }
    }
}

// ---- the ledger ----

std::shared_ptr<Account> Ledger::open(const std::string& origin) {
    const base::Lock lock(mutex_);
    accounts_.reserve(accounts_.size() + 1);
    const auto [at, added] = origins_.try_emplace(origin);
    try {
        if (added) {
            at->second = std::make_shared<Origin>();
            at->second->name = origin;
        }
        auto account = std::make_shared<Account>(shared_from_this(), at->second);
        accounts_.push_back(account.get());
        ++at->second->sessions;
        return account;
    } catch (...) {
        if (added) {
            origins_.erase(at);
        }
        throw;
    }
}

void Ledger::close(const Account& account) {
    for (std::size_t i = 0; i < kHeldKinds; ++i) {
        give(*account.origin_, static_cast<Held>(i), account.parts_[i].taken);
    }
    const base::Lock lock(mutex_);
    std::erase(accounts_, &account);
    if (--account.origin_->sessions == 0) {
        origins_.erase(account.origin_->name);
    }
}

// Others lose what they have pinned only where that is what is missing, and nothing else helps.
bool Ledger::take(Origin& origin, Held what, std::uint64_t amount, Need need) {
    Found found = try_take(origin, what, amount, need);
    for (const bool needed : {false, true}) {
        if (found != Found::no_memory || need == Need::asked || amount > memory_->limit()) {
            break;
        }
        memory_->reclaim(amount, needed);
        found = try_take(origin, what, amount, need);
    }
    return found == Found::room;
}

Ledger::Found Ledger::try_take(Origin& origin, Held what, std::uint64_t amount, Need need) {
    const auto i = static_cast<std::size_t>(what);
    const Limit& limit = limits_[i];
    const bool of_memory = limit.is_memory && memory_ != nullptr;
    const bool if_room = need == Need::asked || need == Need::room;
    const base::Lock lock(mutex_);
    const std::uint64_t kept = limit.of_all / kKept;
    const std::uint64_t of_origin = origin.taken[i] + amount;
    const std::uint64_t all = taken_[i] + amount;
    const bool of_all = all <= limit.of_all && (all <= limit.of_all - kept || of_origin <= kept);
    if (need != Need::anyway && (of_origin > limit.of_origin || (if_room && !of_all))) {
        return Found::none;
    }
    if (of_memory && if_room && !memory_->try_take(amount)) {
        return Found::no_memory;
    }
    if (of_memory && !if_room) {
        memory_->take_anyway(amount);
    }
    origin.taken[i] += amount;
    taken_[i] += amount;
    return Found::room;
}

void Ledger::give(Origin& origin, Held what, std::uint64_t amount) {
    if (amount == 0) {
        return;
    }
    const auto i = static_cast<std::size_t>(what);
    if (limits_[i].is_memory && memory_ != nullptr) {
        memory_->give(amount);
    }
    const base::Lock lock(mutex_);
    origin.taken[i] -= amount;
    taken_[i] -= amount;
}

std::vector<base::AccountCounts> Ledger::origins() const {
    std::map<std::string, Amounts> held;
    std::vector<std::pair<std::uint64_t, base::AccountCounts>> found;
    {
        const base::Lock lock(mutex_);
        for (const Account* const account : accounts_) {
            Amounts& sums = held[account->origin()];
            for (std::size_t i = 0; i < kHeldKinds; ++i) {
                sums[i] += account->parts_[i].held;
            }
        }
        for (const auto& [name, origin] : origins_) {
            const Amounts& sums = held[name];
            std::uint64_t bytes = 0;
            for (std::size_t i = 0; i < kHeldKinds; ++i) {
                bytes += limits_[i].is_bytes ? sums[i] : 0;
            }
            found.emplace_back(bytes, counts_of(name, origin->worked, sums));
            found.back().second.sessions = origin->sessions;
        }
    }
    std::ranges::sort(found, [](const auto& a, const auto& b) {
        return std::pair(a.first, a.second.worked_s) > std::pair(b.first, b.second.worked_s);
    });
    std::vector<base::AccountCounts> all;
    for (auto& [bytes, counts] : found) {
        all.push_back(std::move(counts));
    }
    return all;
}

std::uint64_t Ledger::held(Held what) const {
    const base::Lock lock(mutex_);
    std::uint64_t sum = 0;
    for (const Account* const account : accounts_) {
        sum += account->held(what);
    }
    return sum;
}

// ---- an account ----

Account::Account(std::shared_ptr<Ledger> ledger, std::shared_ptr<Ledger::Origin> origin)
    : ledger_(std::move(ledger)), origin_(std::move(origin)) {}

base::AccountCounts Account::counts() const {
    Ledger::Amounts held{};
    std::ranges::transform(parts_, held.begin(), [](const Part& part) { return part.held.load(); });
    return counts_of(origin(), worked_, held);
}

Account::~Account() { ledger_->close(*this); }

std::uint64_t Account::step(Held what) const {
    const Limit& limit = ledger_->limit(what);
    if (limit.always == 0) {
        return 1;
    }
    return limit.is_memory ? kMemoryStep : std::max<std::uint64_t>(limit.of_session / kSteps, 1);
}

std::uint64_t Account::uncounted(Held what) const {
    return ledger_->limit(what).always == 0 ? 0 : step(what);
}

bool Account::add(Held what, std::uint64_t amount, Ledger::Need need) {
    Part& own = part(what);
    const std::uint64_t held = own.held.fetch_add(amount, std::memory_order_relaxed) + amount;
    const Limit& limit = ledger_->limit(what);
    if (need != Ledger::Need::anyway && held <= limit.always) {
        need = held == amount ? Ledger::Need::anyway : Ledger::Need::own;
    }
    const bool may = held <= limit.of_session || need == Ledger::Need::anyway;
    if (may && (held <= own.taken.load(std::memory_order_relaxed) + uncounted(what) ||
                take_more(what, held, need))) {
        return true;
    }
    own.held.fetch_sub(amount, std::memory_order_relaxed);
    return false;
}

bool Account::take_more(Held what, std::uint64_t held, Ledger::Need need) {
    Part& own = part(what);
    const std::uint64_t step = this->step(what);
    const std::uint64_t has = own.taken + uncounted(what);
    if (held <= has) {
        return true;
    }
    const std::uint64_t more = (held - has + step - 1) / step * step;
    if (!ledger_->take(*origin_, what, more, need)) {
        return false;
    }
    own.taken += more;
    return true;
}

// Keeps a step more than it needs, of what is not counted from the first on: what comes and goes
// does not ask each time.
void Account::remove(Held what, std::uint64_t amount) {
    Part& own = part(what);
    const std::uint64_t held = own.held.fetch_sub(amount, std::memory_order_relaxed) - amount;
    const std::uint64_t step = this->step(what);
    if (own.taken.load(std::memory_order_relaxed) > held / step * step + uncounted(what)) {
        give_back(what);
    }
}

void Account::give_back(Held what) {
    Part& own = part(what);
    const std::uint64_t step = this->step(what);
    std::uint64_t taken = own.taken;
    std::uint64_t kept = 0;
    do {
        kept = own.held / step * step + uncounted(what);
        if (taken <= kept) {
            return;
        }
    } while (!own.taken.compare_exchange_weak(taken, kept));
    ledger_->give(*origin_, what, taken - kept);
}

std::uint64_t Account::end_turn(base::Clock::duration took) {
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    const std::uint64_t units = std::max(
        std::exchange(turn_, 0), static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0)));
    worked_.fetch_add(units, std::memory_order_relaxed);
    origin_->worked.fetch_add(units, std::memory_order_relaxed);
    return units;
}

}  // namespace ucxstore::sessions

#include "storage/spaces.hpp"

#include <algorithm>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "threads/quiet_thread.hpp"
#include "threads/trimming.hpp"

namespace ucxstore::storage {
namespace {

// The bytes of a name that anybody may see.
constexpr std::size_t kShownBytes = 8;

// The least time between two looks at what is pinned of spaces that have ended.
constexpr auto kSweepEvery = std::chrono::seconds(1);

// How often it is looked whether owners' sessions have gone.
constexpr auto kLookEvery = std::chrono::seconds(30);

// Not of one that never was.
bool is_gone(const std::weak_ptr<const void>& session) {
    const std::weak_ptr<const void> none;
    return session.expired() && (session.owner_before(none) || none.owner_before(session));
}

std::string called(std::string_view name) { return "scratch space '" + std::string(name) + "'"; }

std::string gone(std::string_view name) {
    return "the " + called(name) +
           " has ended: its owner has closed it, or has been silent for its time-out, or the "
           "server has restarted";
}

}  // namespace

Spaces::Spaces(const MemoryStorage& memory, bool visible, std::optional<std::uint64_t> limit)
    : Spaces(
          limit ? std::make_shared<Quota>(*limit, "scratch space", memory.quota()) : memory.quota(),
          visible) {}

Spaces::~Spaces() {
    {
        const base::Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Spaces::begin(const std::string& name, std::uint64_t quota, Timeout timeout, TimePoint now,
                   Owner owner) {
    if (timeout < Timeout(1) || timeout > kMaxTimeout) {
        throw base::Error(base::ErrorKind::storage, "no time-out of a scratch space: " +
                                                        std::to_string(timeout.count()) + " ms");
    }
    const base::Lock lock(mutex_);
    auto values = std::make_shared<MemoryStorage>(
        std::make_shared<Quota>(quota, called(name), room_), false, make_shelf(quota), nullptr,
        name.ends_with(protocol::kReadOnce));
    if (!thread_.joinable()) {
        thread_ = threads::start_quiet_thread("ucxstore-spaces", [this] { run(); });
    }
    Space space{std::move(values), timeout, now, now + timeout, std::move(owner)};
    if (!spaces_.try_emplace(name, std::move(space)).second) {
        throw base::Error(base::ErrorKind::storage, "the " + called(name) + " is there already");
    }
    changed_.notify_all();
}

// nullptr where there are enough, or no descriptor or memory for one.
std::shared_ptr<shared::Shelf> Spaces::make_shelf(std::uint64_t quota) const {
    if (!visible_ || spaces_.size() + pinned_.size() >= kMaxVisible) {
        return nullptr;
    }
    const std::uint64_t first =
        std::min(quota, shared::Arenas::kFirstBytes - 1) / shared::Arenas::kHugePage + 1;
    try {
        return shared::Shelf::make(
            {.first_bytes = first * shared::Arenas::kHugePage, .bound = Quota::memory_of(room_)});
    } catch (const base::Error&) {
        return nullptr;
    }
}

void Spaces::renew(const std::string& name, TimePoint now, std::weak_ptr<const void> session) {
    const base::Lock lock(mutex_);
    const auto found = spaces_.find(name);
    if (found == spaces_.end()) {
        throw base::Error(base::ErrorKind::scratch_ended, gone(name));
    }
    found->second.due = now + found->second.timeout;
    found->second.owner.session = std::move(session);
    found->second.owner_gone = TimePoint::max();
}

void Spaces::end(const std::string& name, std::function<void()> freed) {
    {
        const base::Lock lock(mutex_);
        const auto found = spaces_.find(name);
        if (found != spaces_.end()) {
            close(found, std::move(freed));
            return;
        }
    }
    freed();
}

void Spaces::end_all() {
    const base::Lock lock(mutex_);
    for (auto at = spaces_.begin(); at != spaces_.end();) {
        at = close(at, {});
    }
}

void Spaces::expire(TimePoint now) {
    const base::Lock lock(mutex_);
    close_overdue(now);
}

std::shared_ptr<Storage> Spaces::find(std::string_view name) const {
    const base::Lock lock(mutex_);
    const auto found = spaces_.find(name);
    if (found == spaces_.end()) {
        throw base::Error(base::ErrorKind::scratch_ended, gone(name));
    }
    return found->second.values;
}

std::vector<base::SpaceCounts> Spaces::counts(TimePoint now) const {
    std::vector<base::SpaceCounts> counts;
    const base::Lock lock(mutex_);
    for (const auto& [name, space] : spaces_) {
        counts.push_back({name.substr(0, kShownBytes), space.values->held(),
                          space.values->quota()->limit(),
                          std::chrono::duration<double>(now - space.begun).count()});
    }
    return counts;
}

base::ShelfCounts Spaces::shelf_counts() const {
    const base::Lock lock(mutex_);
    base::ShelfCounts sum = seen_before_;
    for (const auto& [name, space] : spaces_) {
        if (const auto shelf = space.values->shelf()) {
            sum += shelf->counts();
        }
    }
    for (const auto& shelf : pinned_) {
        base::ShelfCounts counts = shelf->counts();
        counts.gets_seen = counts.bytes_seen = 0;  // these are in seen_before_
        sum += counts;
    }
    return sum;
}

void Spaces::forget_gone() const {
    const base::Lock lock(mutex_);
    for (const auto& [name, space] : spaces_) {
        if (const auto shelf = space.values->shelf()) {
            shelf->forget_gone();
        }
    }
    for (const auto& shelf : pinned_) {
        shelf->forget_gone();
    }
}

Spaces::All::iterator Spaces::close(All::iterator at, std::function<void()> freed) {
    Ended& ended = ended_.emplace_back();
    try {
        // Whoever has just found the space gets this failure from its storage.
        ended.values = at->second.values->close(gone(at->first));
    } catch (...) {
        ended_.pop_back();
        throw;
    }
    ended.freed = std::move(freed);
    auto shelf = at->second.values->shelf();
    if (shelf != nullptr) {
        const base::ShelfCounts counts = shelf->counts();
        seen_before_.gets_seen += counts.gets_seen;
        seen_before_.bytes_seen += counts.bytes_seen;
    }
    ended.shelf = std::move(shelf);
    changed_.notify_all();
    return spaces_.erase(at);
}

Spaces::TimePoint Spaces::close_overdue(TimePoint now) {
    TimePoint next = spaces_.empty() ? TimePoint::max() : now + kLookEvery;
    for (auto at = spaces_.begin(); at != spaces_.end();) {
        Space& space = at->second;
        if (space.owner_gone == TimePoint::max() && is_gone(space.owner.session)) {
            space.owner_gone = now;
        }
        TimePoint due = space.due;
        if (space.owner_gone != TimePoint::max()) {
            due = std::min(due, space.owner_gone + kOrphaned);
        }
        if (due <= now) {
            at = close(at, {});
        } else {
            next = std::min(next, due);
            ++at;
        }
    }
    return next;
}

// keep_house() may fail while it does not have the lock.
void Spaces::run() UNCHECKED_LOCKS {
    TimePoint next_sweep{};
    TimePoint next_trim{};
    base::UniqueLock lock(mutex_);
    while (!stopping_) {
        try {
            keep_house(lock, next_sweep, next_trim);
        } catch (const std::exception&) {  // for want of memory: tried again
            if (!lock.owns_lock()) {
                lock.lock();
            }
            changed_.wait_for(lock, kSweepEvery);
        }
    }
}

// Ends, frees, sweeps or trims what is due, or waits until something is.
void Spaces::keep_house(base::UniqueLock<base::Mutex>& lock, TimePoint& next_sweep,
                        TimePoint& next_trim) {
    const TimePoint now = Clock::now();
    if (next_trim <= now) {
        trim_shelves(lock);
        next_trim = now + shared::Arenas::kKeepFor;
    }
    TimePoint next = close_overdue(now);
    if (!pinned_.empty() && next_sweep <= now) {
        std::erase_if(pinned_, [](const auto& shelf) { return shelf->waiting() == 0; });
        for (const auto& shelf : pinned_) {
            shelf->sweep_soon();
        }
        next_sweep = now + kSweepEvery;
    }
    if (!pinned_.empty()) {
        next = std::min(next, next_sweep);
    }
    if (visible_ && !(spaces_.empty() && pinned_.empty())) {
        next = std::min(next, next_trim);
    }
    pinned_.reserve(pinned_.size() + ended_.size());
    auto ended = std::exchange(ended_, {});
    if (!ended.empty()) {
        lock.unlock();
        for (Ended& one : ended) {
            free(one);
        }
        threads::trim_soon();
        lock.lock();
        for (Ended& one : ended) {
            if (one.shelf != nullptr && one.shelf->waiting() > 0) {
                pinned_.push_back(std::move(one.shelf));
            }
        }
    } else if (next == TimePoint::max()) {
        changed_.wait(lock);
    } else {
        changed_.wait_until(lock, next);
    }
}

// Gives back arenas that have been empty for too long. Without the lock: to unmap them takes a
// while.
void Spaces::trim_shelves(base::UniqueLock<base::Mutex>& lock) {
    auto shelves = pinned_;
    for (const auto& [name, space] : spaces_) {
        if (auto shelf = space.values->shelf()) {
            shelves.push_back(std::move(shelf));
        }
    }
    lock.unlock();
    for (const auto& shelf : shelves) {
        shelf->trim();
    }
    shelves.clear();
    lock.lock();
}

void Spaces::free(Ended& one) noexcept {
    one.values.clear();
    try {
        if (one.shelf != nullptr) {
            one.shelf->sweep();
        }
    } catch (const std::exception&) {  // for want of memory: it is swept again
    }
    try {
        if (one.freed) {
            one.freed();
        }
    } catch (const std::exception&) {  // for want of memory: whoever waits times out
    }
}

}  // namespace ucxstore::storage

#include "shared/limbo.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/steps.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::chrono::milliseconds kAgain{1};
constexpr std::chrono::hours kEver{24};

// Places, each once. Of few words, as a reader may have many, and all of them nonsense.
class Places {
  public:
    // False where it is there already.
    bool add(Place place) {
        if (2 * (size_ + 1) > cells_.size()) {
            grow();
        }
        Place& cell = find(place);
        const bool fresh = cell == 0;
        cell = place;
        size_ += fresh ? 1 : 0;
        return fresh;
    }
    bool has(Place place) const {
        return !cells_.empty() && const_cast<Places*>(this)->find(place) != 0;
    }

  private:
    static constexpr std::size_t kFirst = 256;

    Place& find(Place place) {
        std::size_t at = (place * 0x9E3779B97F4A7C15ull) >> 20;
        while (cells_[at % cells_.size()] != 0 && cells_[at % cells_.size()] != place) {
            ++at;
        }
        return cells_[at % cells_.size()];
    }
    void grow() {
        std::vector<Place> old(std::max(2 * cells_.size(), kFirst));
        old.swap(cells_);
        for (const Place place : old) {
            if (place != 0) {
                find(place) = place;
            }
        }
    }

    std::vector<Place> cells_;
    std::size_t size_ = 0;
};

Place place_of(const Block& block) { return shared::place_of(block.arena, block.offset); }

std::string origin_of(const PinTable& table) {
    return table.holder() == nullptr ? std::string() : table.holder()->origin();
}

}  // namespace

// What readers have pinned. Only where a block begins: anything else pins nothing.
struct Limbo::Look {
    struct Reader {
        std::shared_ptr<PinTable> table;
        std::uint64_t held = 0;
        std::uint64_t waiting = 0;  // of it
    };

    explicit Look(const std::vector<Retired>& blocks) {
        for (const Retired& one : blocks) {
            retired.add(place_of(one.block));
            retired_bytes += one.block.bytes;
        }
    }

    Places retired;
    std::uint64_t retired_bytes = 0;
    Places pinned;
    std::uint64_t pinned_bytes = 0;
    bool is_all = false;  // somebody has pinned more than is looked at
    std::vector<Reader> readers;
    std::map<std::string, Share> origins;
};

Limbo::Limbo(Arenas& arenas, Board* board, std::uint64_t most_held,
             std::shared_ptr<ArenaBound> bound)
    : arenas_(arenas), board_(board), most_held_(most_held), bound_(std::move(bound)) {
    if (bound_ != nullptr) {
        allowed_before_ = std::min(most_held_, bound_->room_for_readers());
    }
    if (board_ != nullptr && bound_ != nullptr) {
        board_->set_limit(allowed_before_);
    }
}

Limbo::~Limbo() {
    if (getpid() == pid_) {  // a forked child has not the thread
        sweeper_.settle(kEver);
    }
    if (bound_ != nullptr) {
        bound_->keep_for_readers(-kept_);
    }
}

void Limbo::add(std::shared_ptr<PinTable> table) {
    const std::lock_guard sweeping(sweeping_);
    if (bound_ != nullptr) {  // it is told what it may hold now
        allowed_before_ = std::min(most_held_, bound_->room_for_readers());
        if (board_ != nullptr) {
            board_->set_limit(allowed_before_);
        }
    }
    const std::lock_guard lock(mutex_);
    tables_.push_back(std::move(table));
}

Limbo::Tables Limbo::tables() const {
    const std::lock_guard lock(mutex_);
    return tables_;
}

void Limbo::end() {
    for (const auto& table : tables()) {
        table->end();
    }
}

void Limbo::retire(const Block& block, std::shared_ptr<void> keeps) {
    bool due = false;
    bool alone = false;
    {
        const std::lock_guard lock(mutex_);
        retired_.push_back({block, std::move(keeps)});
        bytes_ += block.bytes;
        alone = tables_.empty();
        due = retired_.size() >= next_blocks_ || bytes_ >= next_bytes_;
    }
    try {
        if (alone) {
            sweep();
        } else if (due) {
            sweep_soon(Clock::now());
        }
    } catch (const std::exception&) {  // for want of memory: a later sweep frees it
    }
}

void Limbo::sweep(bool needed) {
    const std::lock_guard lock(sweeping_);
    look_and_free(needed);
}

TimePoint Limbo::sweep_soon(TimePoint now) {
    if (const TimePoint next = next_look_; now < next) {
        return next;
    }
    if (sweeps_) {  // and may have seen already what is different now
        return now + kAgain;
    }
    const auto sweep_now = [this] {
        const std::lock_guard lock(sweeping_);
        sweeps_ = true;
        wanted_ = false;
        try {
            look_and_free(false);
        } catch (const std::exception&) {  // for want of memory: a later sweep frees it
        }
        sweeps_ = false;
    };
    if (!wanted_.exchange(true) && !sweeper_.try_post(sweep_now)) {
        sweep_now();
    }
    return TimePoint::max();
}

void Limbo::forget_gone() {
    const std::lock_guard lock(sweeping_);
    forget_gone_tables();
}

void Limbo::forget_gone_tables() {
    Tables gone;
    for (auto& table : tables()) {
        if (table->reader_gone()) {
            gone.push_back(std::move(table));
        }
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(tables_, [&](const auto& table) {
        if (std::ranges::find(gone, table) == gone.end()) {
            return false;
        }
        const PinTable::Seen seen = table->seen();
        seen_before_.gets += seen.gets;
        seen_before_.bytes += seen.bytes;
        return true;
    });
}

void Limbo::look_and_free(bool needed) {
    const TimePoint begun = Clock::now();
    forget_gone_tables();
    std::vector<Retired> retired;
    {
        const std::lock_guard lock(mutex_);
        retired.swap(retired_);
    }
    std::vector<Retired> freed;
    try {
        Look seen = look(retired);
        while (needed && revoke_from(seen)) {
            seen = look(retired);
        }
        std::erase_if(retired, [&](Retired& one) {
            const bool free = !seen.is_all && !seen.pinned.has(place_of(one.block));
            if (free) {
                freed.push_back(std::move(one));
            }
            return free;
        });
    } catch (...) {  // for want of memory
        const std::lock_guard lock(mutex_);
        std::ranges::move(retired, std::back_inserter(retired_));
        std::ranges::move(freed, std::back_inserter(retired_));
        throw;
    }
    std::uint64_t bytes = 0;
    for (const Retired& one : freed) {
        bytes += one.block.bytes;
        step();
        arenas_.give(one.block);
    }
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
    std::ranges::move(retired, std::back_inserter(retired_));
    next_blocks_ = retired_.size() + kBlocks;
    next_bytes_ = bytes_ + std::min(kBytes, tables_.size() * kBytesPerReader);
    const TimePoint now = Clock::now();
    next_look_ = now + (kPart - 1) * (now - begun);
}

Limbo::Look Limbo::look(const std::vector<Retired>& retired) {
    Look look(retired);
    for (const auto& table : tables()) {
        look_at(table, look);
    }
    if (board_ != nullptr) {
        board_->set_held(look.pinned_bytes);
    }
    if (bound_ == nullptr) {
        return look;
    }
    // Each origin may have what it was told when it took it, as long as it has it.
    const std::uint64_t allowed = std::min(most_held_, bound_->room_for_readers());
    const std::uint64_t before = std::exchange(allowed_before_, allowed);
    std::int64_t kept = 0;
    for (auto& [origin, share] : look.origins) {
        const auto old = shares_.find(origin);
        const std::uint64_t earlier = old == shares_.end() ? before : old->second.allowed;
        share.allowed = std::max(allowed, std::min(std::max(earlier, before), share.held));
        kept += static_cast<std::int64_t>(std::min(share.held, share.allowed) -
                                          std::min(share.waiting, share.allowed));
    }
    shares_ = look.origins;
    bound_->keep_for_readers(kept - std::exchange(kept_, kept));
    if (board_ != nullptr) {
        board_->set_limit(allowed);
    }
    return look;
}

void Limbo::look_at(const std::shared_ptr<PinTable>& table, Look& look) const {
    Places own;
    Look::Reader reader{.table = table};
    std::vector<std::uint64_t> bytes;
    const bool all = table->collect([&](std::span<const Place> places) {
        bytes.assign(places.size(), 0);
        arenas_.bytes_of(places, bytes);
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (bytes[i] == 0 || !own.add(places[i])) {
                continue;
            }
            reader.held += bytes[i];
            reader.waiting += look.retired.has(places[i]) ? bytes[i] : 0;
            look.pinned_bytes += look.pinned.add(places[i]) ? bytes[i] : 0;
        }
    });
    if (!all) {
        look.is_all = true;
        reader.waiting = look.retired_bytes;
        reader.held = std::max(reader.held, reader.waiting);
    }
    table->set_held(reader.held);
    if (table->holder() != nullptr) {
        table->holder()->charge(reader.waiting);
    }
    Share& share = look.origins[origin_of(*table)];
    share.held += reader.held;
    share.waiting += reader.waiting;
    look.readers.push_back(std::move(reader));
}

// Takes what waits from the reader who has most of it, of the origin that has most, where that is
// more than its share. False where nobody has more.
bool Limbo::revoke_from(const Look& look) {
    if (bound_ == nullptr) {
        return false;
    }
    const auto most = std::ranges::max_element(look.origins, [](const auto& a, const auto& b) {
        const auto over = [](const Share& share) {
            return share.waiting - std::min(share.waiting, share.allowed);
        };
        return over(a.second) < over(b.second);
    });
    if (most == look.origins.end() || most->second.waiting <= most->second.allowed) {
        return false;
    }
    const Look::Reader* worst = nullptr;
    for (const Look::Reader& reader : look.readers) {
        if (origin_of(*reader.table) == most->first &&
            (worst == nullptr || reader.waiting > worst->waiting)) {
            worst = &reader;
        }
    }
    worst->table->revoke("it has pinned " + std::to_string(worst->waiting) +
                         " bytes of values that were replaced or removed, while there was no room; "
                         "all clients of its origin may have " +
                         std::to_string(most->second.allowed));
    forget_gone_tables();
    return true;
}

bool Limbo::pins_any(const PinTable& table) const {
    bool any = false;
    std::vector<std::uint64_t> bytes;
    const bool all = table.collect([&](std::span<const Place> places) {
        bytes.assign(places.size(), 0);
        arenas_.bytes_of(places, bytes);
        any = any || std::ranges::any_of(bytes, [](std::uint64_t one) { return one > 0; });
    });
    return any || !all;
}

PinTable::Seen Limbo::seen() const {
    const std::lock_guard lock(mutex_);
    PinTable::Seen sum = seen_before_;
    for (const auto& table : tables_) {
        sum.gets += table->seen().gets;
        sum.bytes += table->seen().bytes;
    }
    return sum;
}

unsigned Limbo::take_uses(Place place) const {
    unsigned sum = 0;
    const std::lock_guard lock(mutex_);
    for (const auto& table : tables_) {
        sum += table->take_uses(place);
    }
    return sum;
}

std::uint64_t Limbo::waiting() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore::shared

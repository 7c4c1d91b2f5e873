#include "shared/retired_blocks.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/steps.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::chrono::seconds kSeldom{1};  // looks come no later than that, whatever they take
constexpr std::chrono::hours kEver{24};

// Places, each once, and numbered as they come. Of few words, as a reader may have many, and all of
// them nonsense.
class PinnedPlaces {
  public:
    struct Added {
        std::size_t number;
        bool fresh;
    };
    Added add(Place place) {
        if (2 * (size_ + 1) > cells_.size()) {
            grow();
        }
        Cell& cell = find(place);
        const bool fresh = cell.place == 0;
        if (fresh) {
            cell = {place, size_++};
        }
        return {cell.number, fresh};
    }
    // nullopt where it is not there.
    std::optional<std::size_t> number_of(Place place) const {
        if (cells_.empty()) {
            return std::nullopt;
        }
        const Cell& cell = const_cast<PinnedPlaces*>(this)->find(place);
        return cell.place == 0 ? std::nullopt : std::optional(cell.number);
    }

  private:
    struct Cell {
        Place place = 0;
        std::size_t number = 0;
    };
    static constexpr std::size_t kFirst = 256;

    Cell& find(Place place) {
        std::size_t at = (place * 0x9E3779B97F4A7C15ull) >> 20;
        while (cells_[at % cells_.size()].place != 0 && cells_[at % cells_.size()].place != place) {
            ++at;
        }
        return cells_[at % cells_.size()];
    }
    void grow() {
        std::vector<Cell> old(std::max(2 * cells_.size(), kFirst));
        old.swap(cells_);
        for (const Cell& cell : old) {
            if (cell.place != 0) {
                find(cell.place) = cell;
            }
        }
    }

    std::vector<Cell> cells_;
    std::size_t size_ = 0;
};

Place place_of(const Block& block) { return shared::place_of(block.arena, block.offset); }

std::string origin_of(const PinTable& table) {
    return table.holder() == nullptr ? std::string() : table.holder()->origin();
}

}  // namespace

// What readers have pinned. Only where a block begins: anything else pins nothing. Blocks that wait
// go by their numbers in `waiting`.
struct RetiredBlocks::Look {
    struct Reader {
        std::shared_ptr<PinTable> table;
        std::uint64_t held = 0;
        std::uint64_t waiting = 0;         // of it
        std::vector<std::size_t> waits{};  // which blocks these are
        bool has_all = false;              // as it has more pinned than is looked at
    };
    // All readers of one together: what several of them have pinned counts once.
    struct Origin {
        Share share;
        PinnedPlaces held;
        std::vector<std::uint32_t> pinners;  // of each block that waits
        std::vector<std::size_t> readers;
    };

    explicit Look(const Blocks& blocks) {
        for (const Retired& one : blocks) {
            waiting.add(place_of(one.block));
            bytes.push_back(one.block.bytes);
            waiting_bytes += one.block.bytes;
        }
        pinners.resize(bytes.size());
    }

    PinnedPlaces waiting;
    std::vector<std::uint64_t> bytes;    // of each block that waits
    std::vector<std::uint32_t> pinners;  // of each, readers
    std::uint64_t waiting_bytes = 0;
    PinnedPlaces pinned;
    std::uint64_t pinned_bytes = 0;
    std::vector<Reader> readers;
    std::map<std::string, Origin> origins;
};

RetiredBlocks::RetiredBlocks(Arenas& arenas, ReaderLimit* reader_limit, std::uint64_t most_held,
                             std::shared_ptr<ArenaBound> bound)
    : arenas_(arenas),
      reader_limit_(reader_limit),
      most_held_(most_held),
      bound_(std::move(bound)) {
    told_ = allowed();
    if (reader_limit_ != nullptr) {
        reader_limit_->set_limit(told_);
    }
}

RetiredBlocks::~RetiredBlocks() {
    if (getpid() == pid_) {  // a forked child has not the thread
        {
            const base::Lock lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        sweeper_.settle(kEver);
    }
    if (bound_ != nullptr) {
        bound_->keep_for_readers(-kept_);
    }
}

std::uint64_t RetiredBlocks::allowed() const {
    return bound_ == nullptr ? most_held_ : std::min(most_held_, bound_->room_for_readers());
}

// Not under `sweeping_`: a newcomer does not wait for the pins of others.
void RetiredBlocks::add(std::shared_ptr<PinTable> table) {
    const std::uint64_t now = allowed();
    const base::Lock lock(mutex_);
    tables_.push_back(std::move(table));
    told_ = std::max(told_, now);
    if (reader_limit_ != nullptr) {  // it is told what it may hold now
        reader_limit_->set_limit(now);
    }
}

RetiredBlocks::Tables RetiredBlocks::tables() const {
    const base::Lock lock(mutex_);
    return tables_;
}

void RetiredBlocks::end() {
    for (const auto& table : tables()) {
        table->end();
    }
}

void RetiredBlocks::retire(const Block& block, std::shared_ptr<void> keeps) {
    bool due = false;
    bool alone = false;
    {
        const base::Lock lock(mutex_);
        retired_.push_back({block, std::move(keeps)});
        bytes_ += block.bytes;
        alone = tables_.empty();
        due = retired_.size() >= next_blocks_ || bytes_ >= next_bytes_;
    }
    try {
        if (alone) {
            sweep();
        } else if (due) {
            sweep_soon();
        }
    } catch (const std::exception&) {  // for want of memory: a later sweep frees it
    }
}

void RetiredBlocks::sweep(bool needed) {
    const base::Lock lock(sweeping_);
    look_and_free(needed);
}

void RetiredBlocks::sweep_soon() {
    if (wanted_.exchange(true)) {
        return;
    }
    try {
        const bool posted = sweeper_.try_post([this] { sweep_when_due(); });
        if (!posted) {  // there is no thread
            wanted_ = false;
            if (next_look_.load() <= base::Clock::now()) {
                sweep();
            }
        }
    } catch (...) {  // for want of memory
        wanted_ = false;
        throw;
    }
}

void RetiredBlocks::make_room(std::uint64_t bytes, bool needed) {
    {
        const base::Lock lock(mutex_);
        const std::uint64_t unseen = bytes_ - std::min(bytes_, seen_bytes_);
        if (look_took_ >= kShort && unseen < bytes && saved(base::Clock::now()).count() < 0) {
            return;
        }
    }
    sweep(needed);
}

void RetiredBlocks::sweep_when_due() {
    {
        base::UniqueLock lock(mutex_);
        if (changed_.wait_until(lock, next_look_.load(),
                                [this]() REQUIRES(mutex_) { return ending_; })) {
            return;
        }
    }
    const base::Lock lock(sweeping_);
    wanted_ = false;  // what is different from now on is seen by another one
    look_and_free(false);
}

void RetiredBlocks::forget_gone() {
    Tables gone;
    for (auto& table : tables()) {
        if (table->reader_gone()) {
            gone.push_back(std::move(table));
        }
    }
    const base::Lock lock(mutex_);
    std::erase_if(tables_, [&](const auto& table) REQUIRES(mutex_) {
        if (std::ranges::find(gone, table) == gone.end()) {
            return false;
        }
        seen_before_ += table->seen();
        return true;
    });
}

void RetiredBlocks::look_and_free(bool needed) {
    const base::TimePoint begun = base::Clock::now();
    forget_gone();
    Blocks retired;
    std::uint64_t seen = 0;
    {
        const base::Lock lock(mutex_);
        retired.swap(retired_);
        seen = bytes_;
    }
    // Moved from list to list, which takes no memory: each block is in one of them, once.
    Blocks freed;
    std::exception_ptr failure;
    try {
        find_unpinned(retired, freed, needed);
    } catch (...) {  // for want of memory
        failure = std::current_exception();
    }
    std::uint64_t bytes = 0;
    for (const Retired& one : freed) {
        bytes += one.block.bytes;
        base::step();
        arenas_.give(one.block);
    }
    const base::Lock lock(mutex_);
    bytes_ -= bytes;
    retired_.splice(retired_.begin(), retired);
    next_blocks_ = retired_.size() + kBlocks;
    next_bytes_ = bytes_ + std::min(kBytes, tables_.size() * kBytesPerReader);
    seen_bytes_ = seen - bytes;
    const base::TimePoint now = base::Clock::now();
    look_took_ = now - begun;
    saved_ = saved(begun) - look_took_;
    looked_ = now;
    next_look_ = now + std::min<base::Clock::duration>((kPart - 1) * look_took_, kSeldom);
    if (failure != nullptr) {
        std::rethrow_exception(failure);
    }
}

// `needed`: see sweep(). First what nobody has pinned, for which nobody has to lose anything.
void RetiredBlocks::find_unpinned(Blocks& retired, Blocks& freed, bool needed) {
    const auto take = [&](const Look& seen) {
        std::size_t number = 0;
        for (auto at = retired.begin(); at != retired.end(); ++number) {
            const auto one = at++;
            if (seen.pinners[number] == 0) {
                freed.splice(freed.end(), retired, one);
            }
        }
    };
    Look seen = look(retired);
    take(seen);
    if (!needed) {
        return;
    }
    if (!freed.empty()) {  // the others have other numbers now
        seen = look(retired);
    }
    if (revoke(seen)) {
        forget_gone();
        take(look(retired));
    }
}

RetiredBlocks::Look RetiredBlocks::look(const Blocks& retired) {
    Look look(retired);
    for (const auto& table : tables()) {
        look_at(table, look);
    }
    // Each origin may have what it was told when it took it, as long as it has it.
    const std::uint64_t now = allowed();
    std::uint64_t before = 0;
    {
        const base::Lock lock(mutex_);
        before = std::exchange(told_, now);
        if (reader_limit_ != nullptr) {
            reader_limit_->set_held(look.pinned_bytes);
            reader_limit_->set_limit(now);
        }
    }
    std::map<std::string, std::uint64_t> shares;
    std::int64_t kept = 0;
    for (auto& [name, origin] : look.origins) {
        Share& share = origin.share;
        const auto old = shares_.find(name);
        const std::uint64_t earlier = old == shares_.end() ? before : old->second;
        share.allowed = std::max(now, std::min(std::max(earlier, before), share.held));
        shares.emplace(name, share.allowed);
        kept += static_cast<std::int64_t>(std::min(share.held, share.allowed) -
                                          std::min(share.waiting, share.allowed));
    }
    shares_ = std::move(shares);
    if (bound_ != nullptr) {
        bound_->keep_for_readers(kept - std::exchange(kept_, kept));
    }
    return look;
}

template <typename Visit>
bool RetiredBlocks::visit_pins(const PinTable& table, const Visit& visit) const {
    std::vector<std::uint64_t> bytes;
    return table.collect([&](std::span<const Place> places) {
        bytes.assign(places.size(), 0);
        arenas_.bytes_of(places, bytes);
        for (std::size_t i = 0; i < places.size(); ++i) {
            visit(places[i], bytes[i]);
        }
    });
}

void RetiredBlocks::look_at(const std::shared_ptr<PinTable>& table, Look& look) const {
    Look::Origin& origin = look.origins[origin_of(*table)];
    origin.pinners.resize(look.bytes.size());
    Look::Reader reader{.table = table};
    PinnedPlaces own;
    std::vector<std::pair<Place, std::uint64_t>> held;
    std::size_t nothing = 0;
    const bool all = visit_pins(*table, [&](Place place, std::uint64_t bytes) {
        if (bytes == 0) {
            ++nothing;
        } else if (own.add(place).fresh) {
            held.emplace_back(place, bytes);
        }
    });
    if (nothing > kMostOfNothing) {
        table->revoke("it has pinned " + std::to_string(nothing) + " places where no value begins");
        return;
    }
    for (const auto& [place, bytes] : held) {
        reader.held += bytes;
        origin.share.held += origin.held.add(place).fresh ? bytes : 0;
        look.pinned_bytes += look.pinned.add(place).fresh ? bytes : 0;
        if (const auto number = look.waiting.number_of(place)) {
            reader.waits.push_back(*number);
        }
    }
    reader.has_all = !all;
    if (!all) {
        reader.waits.resize(look.bytes.size());
        std::iota(reader.waits.begin(), reader.waits.end(), 0);
        reader.held = std::max(reader.held, look.waiting_bytes);
        origin.share.held = std::max(origin.share.held, look.waiting_bytes);
    }
    for (const std::size_t number : reader.waits) {
        reader.waiting += look.bytes[number];
        ++look.pinners[number];
        origin.share.waiting += origin.pinners[number]++ == 0 ? look.bytes[number] : 0;
    }
    table->set_held(reader.held);
    if (table->holder() != nullptr) {
        table->holder()->charge(reader.waiting);
    }
    origin.readers.push_back(look.readers.size());
    look.readers.push_back(std::move(reader));
}

// Takes what they have pinned from readers of each origin that has more than its share of what
// waits, those with most first, until it has no more. All of them from one look: each look may take
// long. False where nobody has lost anything.
bool RetiredBlocks::revoke(Look& look) {
    std::vector<std::pair<const Look::Reader*, std::uint64_t>> chosen;  // and what it may have
    for (auto& [name, origin] : look.origins) {
        auto& share = origin.share;
        std::ranges::sort(origin.readers, std::greater(),
                          [&](std::size_t reader) { return look.readers[reader].waiting; });
        for (const std::size_t number : origin.readers) {
            const Look::Reader& reader = look.readers[number];
            const bool over = share.waiting > share.allowed || reader.has_all;
            if (!over || reader.waiting == 0) {
                break;
            }
            chosen.emplace_back(&reader, share.allowed);
            for (const std::size_t block : reader.waits) {
                --look.pinners[block];
                share.waiting -= --origin.pinners[block] == 0 ? look.bytes[block] : 0;
            }
        }
    }
    bool any = false;
    for (const auto& [reader, allowed] : chosen) {
        // Not where others keep all of its blocks.
        if (std::ranges::none_of(reader->waits,
                                 [&](std::size_t block) { return look.pinners[block] == 0; })) {
            continue;
        }
        any = true;
        reader->table->revoke("it has pinned " + std::to_string(reader->waiting) +
                              " bytes of values that were replaced or removed, while there was no "
                              "room; all clients of its origin may have " +
                              std::to_string(allowed));
    }
    return any;
}

bool RetiredBlocks::pins_any(const PinTable& table) const {
    bool any = false;
    const bool all = visit_pins(table, [&](Place, std::uint64_t bytes) { any = any || bytes > 0; });
    return any || !all;
}

std::unordered_set<Place> RetiredBlocks::pinned() const {
    std::unordered_set<Place> found;
    for (const auto& table : tables()) {
        visit_pins(*table, [&](Place place, std::uint64_t bytes) {
            if (bytes > 0) {
                found.insert(place);
            }
        });
    }
    return found;
}

base::SeenCounts RetiredBlocks::seen() const {
    const base::Lock lock(mutex_);
    base::SeenCounts sum = seen_before_;
    for (const auto& table : tables_) {
        sum += table->seen();
    }
    return sum;
}

unsigned RetiredBlocks::take_uses(Place place) const {
    unsigned sum = 0;
    const base::Lock lock(mutex_);
    for (const auto& table : tables_) {
        sum += table->take_uses(place);
    }
    return sum;
}

std::uint64_t RetiredBlocks::waiting() const {
    const base::Lock lock(mutex_);
    return bytes_;
}

}  // namespace ucxstore::shared

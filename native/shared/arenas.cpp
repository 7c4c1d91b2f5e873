#include "shared/arenas.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>
#include <utility>

#include "base/status.hpp"
#include "memory/huge_pages.hpp"
#include "memory/resident.hpp"
#include "shared/index.hpp"
#include "shared/sealed.hpp"

namespace ucxstore::shared {
namespace {

constexpr std::uint64_t kSmallest = 64;  // a cache line
constexpr int kSealFutureWrite = 0x10;   // F_SEAL_FUTURE_WRITE, which is newer than some headers
constexpr std::size_t kMostAdopted = 256;
// Free runs of pages of an arena that are tried for a block.
constexpr std::size_t kMostRuns = 32;
// How soon it is looked again whether others have unmapped an arena.
constexpr std::chrono::seconds kTryEvery{1};

std::uint64_t round_up(std::uint64_t size, std::uint64_t step) {
    return (size + step - 1) / step * step;
}

std::unique_ptr<std::atomic<bool>[]> none_is_huge(std::uint64_t bytes) {
    return std::make_unique<std::atomic<bool>[]>(bytes / Arenas::kHugePage + 1);
}

[[noreturn]] void throw_no_memory(std::uint64_t bytes) {
    base::throw_errno("an arena of " + std::to_string(bytes) + " bytes", base::ErrorKind::memory);
}

}  // namespace

// ---- one arena ----

Arena::Arena(std::uint32_t number, std::uint64_t bytes)
    : number_(number), size_(bytes), pid_(getpid()), huge_(none_is_huge(bytes)) {
    const std::string name = "ucxstore-" + std::to_string(number);
    const base::Fd file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), static_cast<off_t>(size_)) != 0) {
        throw_no_memory(bytes);
    }
    void* const memory = memory::map_aligned(size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
    if (memory == MAP_FAILED) {
        throw_no_memory(bytes);
    }
    data_ = static_cast<std::byte*>(memory);
    // A forked child must not write where clients read.
    madvise(data_, size_, MADV_DONTFORK);
    // From now on nobody can map it for writing; what is mapped above stays so.
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | kSealFutureWrite | F_SEAL_SEAL;
    readable_ = base::Fd(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    if (fcntl(file.get(), F_ADD_SEALS, seals) != 0 || fchmod(file.get(), S_IRUSR) != 0 ||
        !readable_) {
        munmap(data_, size_);
        throw_no_memory(bytes);
    }
}

Arena::Arena(std::uint32_t number, base::Fd sealed, std::uint64_t bytes,
             std::shared_ptr<threads::Reclaimer> reclaimer)
    : number_(number),
      size_(bytes),
      reclaimer_(std::move(reclaimer)),
      pid_(getpid()),
      readable_(std::move(sealed)),
      huge_(none_is_huge(bytes)) {
    // Private, and writable, though nobody writes: some devices register memory for sending only
    // if it could be written, and get copies of its pages then.
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                              readable_.get(), 0);
    if (memory == MAP_FAILED) {
        throw_no_memory(bytes);
    }
    data_ = static_cast<std::byte*>(memory);
    madvise(data_, bytes, MADV_DONTFORK);
}

Arena::~Arena() {
    if (getpid() != pid_) {
        return;  // a forked child does not have it, and may have others there
    }
    reference_->clear();
    munmap(data_, size_);
    if (reclaimer_ != nullptr) {
        reclaimer_->reclaim(std::move(readable_), size_);
    }
}

base::Fd Arena::open_for_reader() const {
    if (reclaimer_ != nullptr) {  // a lease of its maker's could let open() wait
        return base::Fd(fcntl(readable_.get(), F_DUPFD_CLOEXEC, 0));
    }
    // Opened anew, so that is_alone() tells it from ours.
    return base::Fd(open(("/proc/self/fd/" + std::to_string(readable_.get())).c_str(),
                         O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

// The kernel grants a lease for writing only where nobody else has the file open for reading, or
// mapped by such a descriptor (fcntl(2)). It is given back at once. Whoever opens the file
// meanwhile would have the kernel signal that: by one that does nothing.
bool Arena::is_alone() const {
    fcntl(readable_.get(), F_SETSIG, SIGURG);
    const bool others = fcntl(readable_.get(), F_SETLEASE, F_WRLCK) != 0 && errno == EAGAIN;
    fcntl(readable_.get(), F_SETLEASE, F_UNLCK);
    return !others;
}

bool Arena::is_whole() const { return memory::is_resident(readable_, data_, size_); }

bool Arena::is_huge(std::uint64_t piece) const {
    return huge_[piece].load(std::memory_order_relaxed);
}

void Arena::set_huge(std::uint64_t piece) const {
    huge_[piece].store(true, std::memory_order_relaxed);
}

// ---- all of them ----

Arenas::Arenas(OnDrop on_drop, std::uint64_t first_bytes, std::uint64_t most_bytes,
               std::uint64_t keep_bytes, std::shared_ptr<ArenaBound> bound)
    : on_drop_(std::move(on_drop)),
      first_bytes_(first_bytes),
      most_bytes_(most_bytes),
      keep_bytes_(keep_bytes),
      bound_(std::move(bound)),
      leftovers_(bound_ == nullptr ? std::make_shared<Leftovers>() : bound_->leftovers()),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!timer_) {
        base::throw_errno("creating a timer", base::ErrorKind::resource);
    }
}

Arenas::~Arenas() {
    for (const auto& [number, room] : rooms_) {
        room.arena->leave(*leftovers_, room.touched_bytes);
    }
    if (bound_ != nullptr) {
        bound_->add_idle(-told_);
        bound_->give_reused(reused_);
    }
}

// Tells the bound how much lies idle; under the lock, after any change of that.
void Arenas::tell_idle() noexcept {
    if (bound_ == nullptr) {
        return;
    }
    const auto idle = static_cast<std::int64_t>(touched_ - (taken_ - adopted_bytes_));
    bound_->add_idle(idle - std::exchange(told_, idle));
}

// The same, of a block that nobody has any more. In this order, so that nobody finds room in it.
void Arenas::tell_given(const Block& block) noexcept {
    tell_idle();
    if (block.reused > 0) {
        reused_ -= block.reused;
        bound_->give_reused(block.reused);
    }
}

std::uint64_t Arenas::capacity(std::uint64_t size) {
    if (size > kMaxSmall) {
        return round_up(size, kPage);
    }
    if (size <= 4 * kSmallest) {
        return std::max(kSmallest, round_up(size, kSmallest));
    }
    // Four classes for each power of two: a fifth of a block is unused at the most.
    return round_up(size, std::bit_floor(size - 1) / 4);
}

Block Arenas::take(std::uint64_t size) {
    if (size > SIZE_MAX / 2) {
        throw base::Error(base::ErrorKind::memory, "a value larger than any memory");
    }
    const std::uint64_t bytes = capacity(size);
    const Locked lock(*this);
    const Block block = bytes > kMaxSmall ? take_pages(bytes, bytes) : take_small(bytes);
    if (bytes > kMaxSmall) {
        Room& room = rooms_.at(block.arena);
        try {
            room.large.emplace(block.offset, bytes);
        } catch (...) {
            untouch(room, block.offset, bytes);
            give_pages(block.arena, block.offset, bytes);
            tell_given(block);
            throw;
        }
    }
    taken_ += bytes;
    tell_idle();
    return block;
}

void Arenas::give(const Block& block, bool incomplete) {
    std::shared_ptr<const Arena> gone;  // to unmap a large one takes a while: after the lock
    const Locked lock(*this);
    taken_ -= block.bytes;
    if (const auto adopted = adopted_.extract(block.arena)) {
        gone = std::move(adopted.mapped());
        give_adopted(block);
        return;
    }
    if (block.bytes > kMaxSmall) {
        Room& room = rooms_.at(block.arena);
        room.large.erase(block.offset);
        if (incomplete) {
            untouch(room, block.offset, block.bytes);
        }
        give_pages(block.arena, block.offset, block.bytes);
        tell_given(block);
        return;
    }
    auto& slabs = rooms_.at(block.arena).slabs;
    const auto found = std::prev(slabs.upper_bound(block.offset));
    const std::uint64_t begin = found->first;
    Slab& slab = found->second;
    slab.free.push_back(static_cast<std::uint32_t>((block.offset - begin) / slab.block_bytes));
    slack_ += slab.block_bytes;
    auto& partly = partly_[slab.block_bytes];
    if (slab.free.size() == slab.blocks) {
        slack_ -= kSlabBytes;
        partly.erase({block.arena, begin});
        slabs.erase(found);
        if (incomplete) {
            untouch(rooms_.at(block.arena), begin, kSlabBytes);
        }
        give_pages(block.arena, begin, kSlabBytes);
    } else {
        partly.insert({block.arena, begin});
    }
    tell_given(block);
}

Block Arenas::take_small(std::uint64_t block_bytes) {
    auto& partly = partly_[block_bytes];
    std::uint64_t reused = 0;
    if (!partly.empty()) {
        reused = tell_block(0, block_bytes).value();
    } else {
        const auto blocks = static_cast<std::uint32_t>(kSlabBytes / block_bytes);
        Slab slab{block_bytes, {}, blocks};
        for (std::uint32_t number = blocks; number > 0; --number) {
            slab.free.push_back(number - 1);
        }
        const Block pages = take_pages(kSlabBytes, block_bytes);
        Room& room = rooms_.at(pages.arena);
        try {
            room.slabs.emplace(pages.offset, std::move(slab));
            partly.insert({pages.arena, pages.offset});
        } catch (...) {
            room.slabs.erase(pages.offset);
            untouch(room, pages.offset, pages.bytes);
            give_pages(pages.arena, pages.offset, pages.bytes);
            tell_given(pages);
            throw;
        }
        slack_ += kSlabBytes;
        reused = pages.reused;
    }
    // The lowest, so that the others become empty.
    const auto [number, begin] = *partly.begin();
    Room& room = rooms_.at(number);
    Slab& slab = room.slabs.at(begin);
    const std::uint64_t offset = begin + slab.free.back() * block_bytes;
    slab.free.pop_back();
    slack_ -= block_bytes;
    if (slab.free.empty()) {
        partly.erase(partly.begin());
    }
    return {number, offset, block_bytes, room.arena->data() + offset, reused};
}

Block Arenas::take_pages(std::uint64_t bytes, std::uint64_t used) {
    const std::uint64_t count = bytes / kPage;
    const std::uint64_t alignment = bytes >= kHugePage ? kHugePage / kPage : 1;
    const auto block_in = [&](Room& room, std::uint64_t page, std::uint64_t reused) {
        const std::uint64_t offset = page * kPage;
        return Block{room.arena->number(), offset, bytes, room.arena->data() + offset, reused};
    };
    for (auto& [number, room] : rooms_) {
        // Where there is no room for pages that are not memory yet, others that are may be free.
        std::array<std::uint64_t, kMostRuns> refused;
        std::size_t runs = 0;
        std::optional<Block> block;
        while (!block && runs < refused.size()) {
            const auto page = room.pages.take(count, alignment);
            if (!page) {
                break;
            }
            if (const auto reused = touch(room, *page, count, used)) {
                block = block_in(room, *page, *reused);
            } else {
                refused[runs++] = *page;
            }
        }
        while (runs > 0) {
            room.pages.give(refused[--runs], count);
        }
        if (block) {
            if (std::exchange(room.empty_since, std::nullopt)) {
                kept_ -= room.arena->size();
                room.told = false;
            }
            return *block;
        }
    }
    const auto too_many = [&]() REQUIRES(mutex_) {
        const std::uint64_t left = bound_ == nullptr ? leftovers_->bytes() : 0;
        return bytes > most_bytes_ - std::min(most_bytes_, touched_ + left) ||
               (bound_ != nullptr && !bound_->has_room(bytes));
    };
    ++round_;
    for (auto room = longest_empty(true); room != rooms_.end() && too_many();
         room = longest_empty(true)) {
        try_drop(room);
        gone_.clear();  // at once: its memory is wanted, and counts if others keep it
        tell_idle();
    }
    const auto refuse = [&]() REQUIRES(mutex_) {
        throw base::Error(base::ErrorKind::memory, "no room for " + std::to_string(bytes) +
                                                       " bytes: arenas take " +
                                                       std::to_string(touched_) + " bytes");
    };
    if (too_many()) {
        refuse();
    }
    Room& room = add_arena(bytes);
    const std::uint64_t page = room.pages.take(count, alignment).value();
    const auto reused = touch(room, page, count, used);
    if (!reused) {  // somebody else has taken the room meanwhile
        give_pages(room.arena->number(), page * kPage, bytes);
        tell_idle();  // that may have dropped others
        refuse();
    }
    return block_in(room, page, *reused);
}

// Counts the pages that no block has had so far.
std::optional<std::uint64_t> Arenas::touch(Room& room, std::uint64_t page, std::uint64_t count,
                                           std::uint64_t used) {
    if (!counts_pages()) {
        return 0;
    }
    const auto begin = room.touched.begin() + static_cast<std::ptrdiff_t>(page);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    const auto fresh = static_cast<std::uint64_t>(std::count(begin, end, false)) * kPage;
    const std::uint64_t left = bound_ == nullptr ? leftovers_->bytes() : 0;
    if (fresh > most_bytes_ - std::min(most_bytes_, touched_ + left)) {
        return std::nullopt;
    }
    const auto reused = tell_block(fresh, used);
    if (reused) {
        std::fill(begin, end, true);
        room.touched_bytes += fresh;
        touched_ += fresh;
    }
    return reused;
}

std::optional<std::uint64_t> Arenas::tell_block(std::uint64_t fresh, std::uint64_t used) {
    if (bound_ == nullptr) {
        return 0;
    }
    if (!bound_->try_touch(fresh, used)) {
        return std::nullopt;
    }
    told_ += static_cast<std::int64_t>(fresh) - static_cast<std::int64_t>(used);
    const std::uint64_t reused = ArenaBound::reused(fresh, used);
    reused_ += reused;
    return reused;
}

// The opposite, of those that nobody has written to: the kernel has no memory for them.
void Arenas::untouch(Room& room, std::uint64_t offset, std::uint64_t bytes) {
    if (!counts_pages()) {
        return;
    }
    const int file = room.arena->descriptor();
    const auto end = static_cast<off_t>(offset + bytes);
    for (auto at = static_cast<off_t>(offset); at < end;) {
        const off_t hole = lseek(file, at, SEEK_HOLE);
        if (hole < 0 || hole >= end) {
            return;
        }
        const off_t data = lseek(file, hole, SEEK_DATA);
        at = data < 0 ? end : std::min(data, end);
        const auto pages = room.touched.begin();
        const auto page_size = static_cast<off_t>(kPage);
        const auto first = pages + (hole + page_size - 1) / page_size;
        const auto last = pages + at / page_size;
        if (first < last) {
            const auto fewer = static_cast<std::uint64_t>(std::count(first, last, true)) * kPage;
            std::fill(first, last, false);
            room.touched_bytes -= fewer;
            touched_ -= fewer;
        }
    }
}

void Arenas::give_pages(std::uint32_t arena, std::uint64_t offset, std::uint64_t bytes) {
    const auto found = rooms_.find(arena);
    Room& room = found->second;
    room.pages.give(offset / kPage, bytes / kPage);
    if (room.pages.free() * kPage != room.arena->size()) {
        return;
    }
    room.empty_since = base::Clock::now();
    kept_ += room.arena->size();
    tell_idle();
    // Where there is no room for another one beside it, a larger value needs its memory soon.
    if (bound_ != nullptr && !bound_->has_room(room.arena->size())) {
        tell_readers(room);
    }
    ++round_;
    for (auto one = longest_empty(true); one != rooms_.end() && kept_ > keep_bytes_;
         one = longest_empty(true)) {
        try_drop(one);
    }
    set_timer();
}

// They unmap it, if they have not been told yet.
void Arenas::tell_readers(Room& room) {
    if (on_drop_ && !std::exchange(room.told, true)) {
        on_drop_(room.arena->number());
    }
}

// False where others have it mapped: then it stays, and may be used again.
bool Arenas::try_drop(Rooms::iterator at) {
    Room& room = at->second;
    room.tried = round_;
    tell_readers(room);
    if (!room.arena->is_alone()) {
        room.empty_since = base::Clock::now() - kKeepFor + kTryEvery;
        return false;
    }
    // Its memory counts on until nobody has it.
    room.arena->leave(*leftovers_, room.touched_bytes);
    reserved_ -= room.arena->size();
    kept_ -= room.arena->size();
    touched_ -= room.touched_bytes;
    gone_.insert(rooms_.extract(at));
    return true;
}

// rooms_.end() where none is empty; `untried`: of those that were not to go in this round.
Arenas::Rooms::iterator Arenas::longest_empty(bool untried) {
    auto longest = rooms_.end();
    for (auto room = rooms_.begin(); room != rooms_.end(); ++room) {
        const auto& since = room->second.empty_since;
        if (untried && room->second.tried == round_) {
            continue;
        }
        if (since && (longest == rooms_.end() || *since < *longest->second.empty_since)) {
            longest = room;
        }
    }
    return longest;
}

void Arenas::trim(base::TimePoint now) {
    std::uint64_t expirations;
    static_cast<void>(!::read(timer_.get(), &expirations, sizeof(expirations)));
    const Locked lock(*this);
    ++round_;
    for (auto room = longest_empty(true);
         room != rooms_.end() && *room->second.empty_since + kKeepFor <= now;
         room = longest_empty(true)) {
        try_drop(room);
    }
    tell_idle();
    set_timer();
}

void Arenas::give_back() {
    const Locked lock(*this);
    ++round_;
    for (auto room = longest_empty(true); room != rooms_.end(); room = longest_empty(true)) {
        try_drop(room);
    }
    tell_idle();
    set_timer();
}

// For the arena that has been empty for longest; it does not run while there is none.
void Arenas::set_timer() {
    itimerspec when{};
    if (const auto room = longest_empty(); room != rooms_.end()) {
        const auto left = *room->second.empty_since + kKeepFor - base::Clock::now();
        const auto ms =
            std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 1);
        when.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
    }
    timerfd_settime(timer_.get(), 0, &when, nullptr);
}

std::size_t Arenas::most_adopted() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    return std::min<std::size_t>(kMostAdopted, files.rlim_cur / 8);
}

std::optional<Block> Arenas::adopt(base::Fd&& file, std::uint64_t bytes) {
    if (!is_sealed(file, bytes)) {
        return std::nullopt;
    }
    const base::Lock lock(mutex_);
    if (adopted_.size() >= most_adopted() || last_number_ == UINT32_MAX) {
        return std::nullopt;
    }
    auto arena =
        std::make_shared<const Arena>(last_number_ + 1, std::move(file), bytes, reclaimer_);
    if (!arena->is_whole()) {
        return std::nullopt;
    }
    const Block block{++last_number_, 0, bytes, arena->data()};
    adopted_.emplace(block.arena, std::move(arena));
    taken_ += bytes;
    adopted_bytes_ += bytes;
    return block;
}

void Arenas::give_adopted(const Block& block) {
    adopted_bytes_ -= block.bytes;
    if (on_drop_) {
        on_drop_(block.arena);
    }
}

Arenas::Room& Arenas::add_arena(std::uint64_t at_least) {
    // As large as all before it together, so that their number grows with the logarithm.
    const std::uint64_t usual = std::clamp(reserved_, first_bytes_, kMostBytes);
    const std::uint64_t bytes = std::max(usual, round_up(at_least, kHugePage));
    if (bytes > kMaxArenaBytes || last_number_ == UINT32_MAX) {
        throw base::Error(base::ErrorKind::memory, "no arena can have " + std::to_string(bytes) +
                                                       " bytes, or no more can be made");
    }
    auto arena = std::make_shared<const Arena>(last_number_ + 1, bytes);
    ++last_number_;
    reserved_ += bytes;
    Room room{std::move(arena), Extents(bytes / kPage), {}};
    if (counts_pages()) {
        room.touched.resize(bytes / kPage);
    }
    return rooms_.emplace(last_number_, std::move(room)).first->second;
}

std::uint64_t Arenas::bytes_of(std::uint32_t arena, std::uint64_t offset) const {
    const base::Lock lock(mutex_);
    return bytes_at(arena, offset);
}

void Arenas::bytes_of(std::span<const std::uint64_t> places, std::span<std::uint64_t> bytes) const {
    const base::Lock lock(mutex_);
    for (std::size_t i = 0; i < places.size(); ++i) {
        bytes[i] = bytes_at(arena_of(places[i]), offset_of(places[i]));
    }
}

std::uint64_t Arenas::bytes_at(std::uint32_t arena, std::uint64_t offset) const {
    if (const auto adopted = adopted_.find(arena); adopted != adopted_.end()) {
        return offset == 0 ? adopted->second->size() : 0;
    }
    const auto found = rooms_.find(arena);
    if (found == rooms_.end()) {
        return 0;
    }
    const Room& room = found->second;
    if (const auto large = room.large.find(offset); large != room.large.end()) {
        return large->second;
    }
    const auto after = room.slabs.upper_bound(offset);
    if (after == room.slabs.begin()) {
        return 0;
    }
    const auto& [begin, slab] = *std::prev(after);
    const bool begins = offset - begin < kSlabBytes && (offset - begin) % slab.block_bytes == 0;
    return begins ? slab.block_bytes : 0;
}

std::shared_ptr<const Arena> Arenas::arena(std::uint32_t number) const {
    const base::Lock lock(mutex_);
    if (const auto found = rooms_.find(number); found != rooms_.end()) {
        return found->second.arena;
    }
    const auto found = adopted_.find(number);
    return found == adopted_.end() ? nullptr : found->second;
}

Arenas::Usage Arenas::usage() const {
    const base::Lock lock(mutex_);
    Usage usage{.arenas = rooms_.size() + adopted_.size(),
                .reserved = reserved_ + adopted_bytes_,
                .taken = taken_,
                .slack = slack_,
                .adopted = adopted_.size(),
                .adopted_bytes = adopted_bytes_,
                .touched = touched_};
    for (const auto& [number, room] : rooms_) {
        usage.largest = std::max(usage.largest, room.pages.largest() * kPage);
    }
    return usage;
}

}  // namespace ucxstore::shared

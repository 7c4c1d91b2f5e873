#include "shared/pins.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/steady.hpp"
#include "base/steps.hpp"

namespace ucxstore::shared {

using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// ---- the server's side ----

PinTable::PinTable(bool counts_uses, std::shared_ptr<const void> keeps,
                   std::shared_ptr<Holder> holder)
    : keeps_(std::move(keeps)), holder_(std::move(holder)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        base::throw_errno("a pipe to a reader", base::ErrorKind::resource);
    }
    lifeline_ = base::Fd(ends[0]);
    descriptors_.lifeline = base::Fd(ends[1]);
    base::Fd file(memfd_create("ucxstore-pins", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void* memory = MAP_FAILED;
    if (file && ftruncate(file.get(), kFamilyBytes) == 0 &&
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        memory = mmap(nullptr, kFamilyBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (memory == MAP_FAILED) {
        base::throw_errno("a table of pins", base::ErrorKind::memory);
    }
    madvise(memory, kFamilyBytes, MADV_DONTFORK);
    memory_ = static_cast<std::byte*>(memory);
    watch_ = open_anew(file);
    if (!watch_) {
        munmap(memory_, kFamilyBytes);
        base::throw_errno("opening a table of pins", base::ErrorKind::resource);
    }
    header().counts_uses.store(counts_uses ? 1 : 0, memory_order_relaxed);
    descriptors_.table = std::move(file);
}

PinTable::~PinTable() {
    if (holder_ != nullptr) {
        holder_->charge(0);
    }
    munmap(memory_, kFamilyBytes);
}

PinTable::Descriptors PinTable::take_descriptors() { return std::move(descriptors_); }

FamilyHeader& PinTable::header() const { return *reinterpret_cast<FamilyHeader*>(memory_); }

const PinTableMemory& PinTable::table(std::uint64_t number) const {
    return *reinterpret_cast<const PinTableMemory*>(memory_ + table_offset(number));
}

bool PinTable::lifeline_ended() const {
    pollfd entry{.fd = lifeline_.get(), .events = 0, .revents = 0};
    return poll(&entry, 1, 0) > 0;
}

std::uint64_t PinTable::tables() const {
    return std::min(header().children.load(memory_order_seq_cst), kFamilyTables - 1) + 1;
}

bool PinTable::reader_gone() const {
    if (revoked_) {
        return true;
    }
    if (!lifeline_ended()) {
        return false;
    }
    for (std::uint64_t number = 1; number < tables(); ++number) {
        if (is_locked(watch_, number)) {
            return false;
        }
    }
    return true;
}

base::SeenCounts PinTable::seen() const {
    return {header().gets.load(memory_order_relaxed), header().bytes.load(memory_order_relaxed)};
}

unsigned PinTable::take_uses(Place place) const {
    // A use that is counted between the two is lost, which does no harm.
    auto& uses = reinterpret_cast<Uses*>(memory_ + kUsesOffset)->counts[use_of(place)];
    const unsigned count = uses.load(memory_order_relaxed);
    if (count != 0) {
        uses.store(0, memory_order_relaxed);
    }
    return std::min(count, kMostUses);
}

// Tells what each pin of a table has. To read a page of it that is not there would make it memory,
// which nobody counts. If it comes to be meanwhile, what is pinned there was found in the index
// after this look has begun. What is not there may also have been swapped out: read(2) gets that
// back, and makes no memory of what is a hole. (Not SEEK_HOLE, which waits for whoever writes to
// the file.)
template <typename TellOne>
void PinTable::read_table(std::uint64_t number, std::vector<Place>& absent, TellOne tell) const {
    const auto& pins = table(number).pins;
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / sizeof(Place);
    std::array<unsigned char, sizeof(PinTableMemory) / 4096> there;
    const bool is_told =
        mincore(const_cast<std::atomic<Place>*>(pins), sizeof(pins), there.data()) == 0;
    for (std::size_t first = 0; first < kPins; first += page) {
        const std::size_t count = std::min(page, kPins - first);
        if (!is_told || (there[first / page] & 1) != 0) {
            for (std::size_t i = first; i < first + count; ++i) {
                tell(i, pins[i].load(memory_order_seq_cst));
            }
            continue;
        }
        const auto at = static_cast<off_t>(table_offset(number) + first * sizeof(Place));
        const ssize_t got = pread(watch_.get(), absent.data(), count * sizeof(Place), at);
        for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof(Place); ++i) {
            tell(first + i, absent[i]);
        }
    }
}

bool PinTable::collect(const Tell& tell) const {
    if (revoked_) {
        return true;
    }
    std::size_t left = kMostPins;
    // A child has what its parent had under the same number: that is told once.
    std::vector<Place> last(kPins);
    std::vector<Place> found;
    std::vector<Place> absent(kPins);
    const auto add = [&](std::uint64_t number) {
        read_table(number, absent, [&](std::size_t i, Place place) {
            if (place != 0 && std::exchange(last[i], place) != place) {
                found.push_back(place);
            }
        });
        const bool all = found.size() <= left;
        left -= std::min(left, found.size());
        tell(found);
        found.clear();
        return all;
    };
    // In ascending order: see lock_table().
    bool all = lifeline_ended() || add(0);
    for (std::uint64_t number = 1; all && number < tables(); ++number) {
        all = !is_locked(watch_, number) || add(number);
    }
    return all;
}

void PinTable::revoke(const std::string& why) {
    // Before any block is freed: whoever reads there what comes later finds this, too.
    header().ended.fetch_or(kFindsNothing | kPinsNothing, memory_order_seq_cst);
    revoked_ = true;
    if (holder_ != nullptr) {
        holder_->charge(0);
        holder_->lose(why);
    }
}

// ---- a reader's side ----

Pins::Pins(PinTable::Descriptors descriptors)
    : lifeline_(std::move(descriptors.lifeline)), file_(std::move(descriptors.table)) {
    struct stat status{};
    if (!base::is_steady(file_) || fstat(file_.get(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != kFamilyBytes) {
        throw base::Error(base::ErrorKind::protocol,
                          "the server's table of pins is of another kind");
    }
    // Apart, so that a child can have the one of its parent and another one.
    const auto map = [&](std::uint64_t bytes, std::uint64_t offset) {
        return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(),
                    static_cast<off_t>(offset));
    };
    void* const header = map(sizeof(FamilyHeader), 0);
    void* const memory = map(sizeof(PinTableMemory), table_offset(0));
    void* const uses = map(sizeof(Uses), kUsesOffset);
    if (header == MAP_FAILED || memory == MAP_FAILED || uses == MAP_FAILED) {
        const auto unmap = [](void* place, std::size_t bytes) {
            if (place != MAP_FAILED) {
                munmap(place, bytes);
            }
        };
        unmap(header, sizeof(FamilyHeader));
        unmap(memory, sizeof(PinTableMemory));
        unmap(uses, sizeof(Uses));
        base::throw_errno("the server's table of pins", base::ErrorKind::protocol);
    }
    header_ = static_cast<FamilyHeader*>(header);
    memory_ = static_cast<PinTableMemory*>(memory);
    uses_ = static_cast<Uses*>(uses);
    enlist();
}

Pins::~Pins() {
    strike_off();
    munmap(uses_, sizeof(Uses));
    munmap(memory_, sizeof(PinTableMemory));
    munmap(header_, sizeof(FamilyHeader));
}

void Pins::count(std::uint64_t bytes) {
    header_->gets.fetch_add(1, memory_order_relaxed);
    header_->bytes.fetch_add(bytes, memory_order_relaxed);
}

void Pins::note_use(Place place) {
    if (header_->counts_uses.load(memory_order_relaxed) == 0) {
        return;
    }
    // What is read all the time is not written again and again: other threads have the line, too.
    std::atomic<std::uint8_t>& uses = uses_->counts[use_of(place)];
    const std::uint8_t count = uses.load(memory_order_relaxed);
    if (count < kMostUses) {
        uses.store(static_cast<std::uint8_t>(count + 1), memory_order_relaxed);
    }
}

std::atomic<Place>* Pins::take() {
    // Threads begin at words of their own, so that they seldom meet.
    static thread_local const std::size_t begin =
        std::hash<std::thread::id>()(std::this_thread::get_id());
    for (std::size_t i = 0; i < kPinWords; ++i) {
        const std::size_t word = (begin + i) % kPinWords;
        std::uint64_t used = used_[word].load(memory_order_relaxed);
        while (~used != 0) {
            const int bit = std::countr_one(used);
            if (used_[word].compare_exchange_weak(used, used | std::uint64_t{1} << bit,
                                                  std::memory_order_acquire,
                                                  memory_order_relaxed)) {
                return &memory_->pins[word * 64 + static_cast<std::size_t>(bit)];
            }
        }
    }
    return nullptr;
}

void Pins::pass_on(const std::atomic<Place>* pin) {
    const auto number = static_cast<std::size_t>(pin - memory_->pins);
    passed_on_[number / 64].fetch_or(std::uint64_t{1} << number % 64, memory_order_seq_cst);
}

void Pins::give(std::atomic<Place>* pin) {
    const auto number = static_cast<std::size_t>(pin - memory_->pins);
    const std::uint64_t bit = std::uint64_t{1} << number % 64;
    if ((stuck_[number / 64].load(memory_order_seq_cst) & bit) != 0) {
        return;
    }
    passed_on_[number / 64].fetch_and(~bit, memory_order_seq_cst);
    pin->store(0, memory_order_release);
    used_[number / 64].fetch_and(~bit, memory_order_release);
}

// ---- forks ----

void Pins::before_fork() noexcept {
    const bool any = std::ranges::any_of(
        passed_on_, [](const auto& word) { return word.load(memory_order_seq_cst) != 0; });
    shares_ = any && (lives_on_parents_ || !take_table());
    if (shares_) {
        for (std::size_t word = 0; word < kPinWords; ++word) {
            stuck_[word].fetch_or(passed_on_[word].load(memory_order_seq_cst),
                                  memory_order_seq_cst);
        }
    }
}

bool Pins::take_table() noexcept {
    base::Fd opened = open_anew(file_);
    const auto number = opened ? lock_table(opened, number_) : std::nullopt;
    if (!number) {
        return false;
    }
    const std::unique_ptr<Place[]> image(new (std::nothrow) Place[kPins]());
    if (image == nullptr) {
        return false;
    }
    for (std::size_t i = 0; i < kPins; ++i) {
        const std::uint64_t passed = passed_on_[i / 64].load(memory_order_seq_cst);
        if ((passed >> i % 64 & 1) != 0) {
            image[i] = memory_->pins[i].load(memory_order_seq_cst);
        }
    }
    base::step();
    if (pwrite(opened.get(), image.get(), kPins * sizeof(Place),
               static_cast<off_t>(table_offset(*number))) !=
        static_cast<ssize_t>(kPins * sizeof(Place))) {
        return false;
    }
    // Written to, not just read: what is pinned there is seen before this process clears its own
    // pins, after the fork.
    std::uint64_t last = header_->children.fetch_add(0, memory_order_seq_cst);
    while (last < *number && !header_->children.compare_exchange_weak(last, *number)) {
    }
    base::step();
    childs_file_ = std::move(opened);
    childs_number_ = *number;
    return true;
}

void Pins::in_parent() noexcept {
    childs_file_.reset();  // the child has the lock now
}

void Pins::in_child() noexcept {
    // Under the same address, as pins are known by it. What it still has of the parent's is not
    // touched any more.
    const int protection = PROT_READ | PROT_WRITE;
    void* mapped = MAP_FAILED;
    if (childs_file_) {
        mapped = mmap(memory_, sizeof(PinTableMemory), protection, MAP_SHARED | MAP_FIXED,
                      childs_file_.get(), static_cast<off_t>(table_offset(childs_number_)));
        file_ = std::move(childs_file_);
        number_ = childs_number_;
        lifeline_.reset();
    } else {
        mapped = mmap(memory_, sizeof(PinTableMemory), protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        lives_on_parents_ = shares_;
        if (!shares_) {
            file_.reset();
            lifeline_.reset();
        }
    }
    if (mapped == MAP_FAILED) {
        // Nothing is cleared in the parent's table. What is pinned ends with the child.
        for (auto& word : stuck_) {
            word.store(~std::uint64_t{0}, memory_order_seq_cst);
        }
    }
    shares_ = false;
}

}  // namespace ucxstore::shared

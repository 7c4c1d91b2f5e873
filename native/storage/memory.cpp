#include "storage/memory.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "shared/sealed.hpp"
#include "storage/version.hpp"

namespace ucxstore::storage {
namespace {

// A share of a quota, for as long as it lives. On one thread, until nothing is added any more.
class Share {
  public:
    // `replaces`: another value.
    Share(std::shared_ptr<Quota> quota, bool replaces, Quota::Pressure pressure)
        : quota_(std::move(quota)), pressure_(pressure), taken_{.replaces = replaces} {}
    void add(std::uint64_t value, std::uint64_t more = 0, std::uint64_t reused = 0) {
        quota_->take({value, more, taken_.replaces, reused}, pressure_);
        taken_.value += value;
        taken_.more += more;
        taken_.reused += reused;
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { quota_->give(taken_); }

  private:
    const std::shared_ptr<Quota> quota_;
    const Quota::Pressure pressure_;
    Quota::Amount taken_;
};

struct CountedRegion {
    std::shared_ptr<void> share;  // first, and so last to go
    std::shared_ptr<memory::Region> region;
};

// What an entry takes beside its key and its value, at the most: nodes and control blocks.
constexpr std::uint64_t kEntryBytes = 512;

// The bytes of names in a page.
constexpr std::size_t kMostNames = 256 * 1024;

// So many entries are looked at under the lock: writers wait for that, and with them all sessions
// of their thread. It takes some 50 us.
constexpr int kMostUnderLock = 256;

// So much more than is needed is given up at a time: what readers have pinned is then looked up
// once for many values.
constexpr std::uint64_t kAheadPart = 64;

// Where values go, so much of the limit is for the keys that stay. What arenas have taken once
// would leave them no room.
constexpr std::uint64_t kKeysPart = 8;

// Where values go to a disk, so much of the limit is to be free for new ones; and so many bytes go
// at a time.
constexpr std::uint64_t kFreePart = 8;
constexpr std::uint64_t kRoundBytes = 16 << 20;

// After a round in which nothing could go, as of a full disk.
constexpr std::chrono::seconds kPause{1};

constexpr std::chrono::hours kEver{24};

std::shared_ptr<memory::Region> allocate_counted(std::shared_ptr<void> share, std::uint64_t size) {
    auto counted = std::make_shared<CountedRegion>(
        CountedRegion{std::move(share), memory::allocate_region(size, memory::Kept::for_long)});
    memory::Region* region = counted->region.get();
    return {std::move(counted), region};
}

// In the place of a value that was freed as it was read. It has no bytes.
class FreedValue : public memory::Region {
  public:
    explicit FreedValue(const memory::Region& value) : size_(value.size()) {
        set_version(value.version());
    }
    std::byte* data() const override { return nullptr; }
    std::uint64_t size() const override { return size_; }

  private:
    const std::uint64_t size_;
};

class MemoryIncoming : public Incoming {
  public:
    // `share`: what is to grow with the bytes that come, by `uncounted` of them; nullptr where it
    // has them all. `records`: what counts for the key.
    MemoryIncoming(MemoryStorage& storage, std::string key, std::shared_ptr<memory::Region> region,
                   std::shared_ptr<Share> share, std::uint64_t uncounted,
                   std::shared_ptr<void> records)
        : storage_(storage),
          key_(std::move(key)),
          region_(std::move(region)),
          share_(std::move(share)),
          uncounted_(uncounted),
          records_(std::move(records)) {}
    MemoryIncoming(const MemoryIncoming&) = delete;
    MemoryIncoming& operator=(const MemoryIncoming&) = delete;
    ~MemoryIncoming() override {
        if (region_ != nullptr) {
            storage_.note_incomplete(*region_);
        }
    }
    // They may come anywhere in the block. So those that become memory as they come are counted
    // first, and the others, which have been counted, last.
    void expect(std::uint64_t bytes) override {
        const std::uint64_t more = std::min(bytes, uncounted_);
        if (more > 0) {
            share_->add(more);
            uncounted_ -= more;
        }
    }
    std::byte* data() override { return region_->data(); }
    const memory::Region* region() const override { return region_.get(); }
    bool commit(bool if_absent) override {
        expect(uncounted_);
        share_.reset();
        return storage_.put(key_, std::move(region_), std::move(records_), if_absent);
    }

  private:
    MemoryStorage& storage_;
    std::string key_;
    std::shared_ptr<memory::Region> region_;
    std::shared_ptr<Share> share_;
    std::uint64_t uncounted_;
    std::shared_ptr<void> records_;
};

}  // namespace

// What those who read values say of them, as it was when this was made.
class MemoryStorage::Readers : public S3Fifo::Owner {
  public:
    explicit Readers(const shared::Shelf* shelf) : shelf_(shelf) {
        if (shelf_ != nullptr) {
            pinned_ = shelf_->pinned();
        }
    }
    // To give up what is in use gives no room.
    bool is_busy(const S3Fifo::Entry& entry) const override {
        const auto& value = value_of(entry);
        return value.use_count() > 1 || (pinned_ && pinned_(*value));
    }
    unsigned take_uses(const S3Fifo::Entry& entry) override {
        return shelf_ == nullptr ? 0 : shelf_->take_uses(*value_of(entry));
    }

  private:
    static const std::shared_ptr<const memory::Region>& value_of(const S3Fifo::Entry& entry) {
        return static_cast<const Entry&>(entry).value;
    }

    const shared::Shelf* const shelf_;
    std::function<bool(const memory::Sized&)> pinned_;
};

MemoryStorage::MemoryStorage(std::shared_ptr<Quota> quota, bool count_keys,
                             std::shared_ptr<shared::Shelf> shelf,
                             std::unique_ptr<Shedding> shedding, bool read_once)
    : quota_(std::move(quota)),
      count_keys_(count_keys),
      shelf_(std::move(shelf)),
      shedding_(std::move(shedding)),
      read_once_(read_once),
      order_(quota_->limit()) {
    if (shelf_ != nullptr) {
        reclaim_ =
            quota_->add_reclaim([weak = std::weak_ptr(shelf_)](std::uint64_t bytes, bool needed) {
                const auto one = weak.lock();
                if (one == nullptr) {
                    return;
                }
                one->make_room(bytes, needed);
                if (needed) {
                    one->give_back();
                }
            });
    }
    if (shedding_ == nullptr) {
        return;
    }
    quota_->keep_from_arenas(quota_->limit() / kKeysPart);
    // Also for who has another quota within this one.
    shed_ = quota_->set_shed([this](std::uint64_t bytes) {
        if (spills()) {  // nobody may wait for that
            shed_soon();
            return false;
        }
        return can_free(bytes) && shed(bytes + quota_->limit() / kAheadPart);
    });
}

MemoryStorage::~MemoryStorage() {
    if (getpid() == pid_) {  // a forked child has not the thread
        leave();
    }
}

void MemoryStorage::leave() noexcept {
    if (leaving_.exchange(true)) {
        return;
    }
    shed_.reset();
    if (spills()) {
        shedder_.settle(kEver);
        shedding_->leave();
    }
}

std::uint64_t MemoryStorage::held() const {
    look_again();
    return quota_->taken();
}

void MemoryStorage::look_again() const {
    if (shelf_ != nullptr) {
        shelf_->sweep_soon();
    }
}

MemoryStorage::Catalog MemoryStorage::close(std::string why) {
    const base::Lock lock(mutex_);
    closed_ = std::move(why);
    stored_ = 0;
    if (shelf_ != nullptr) {
        shelf_->end();
    }
    return std::exchange(catalog_, {});
}

void MemoryStorage::check_open() const {
    if (!closed_.empty()) {
        throw base::Error(base::ErrorKind::scratch_ended, closed_);
    }
}

void MemoryStorage::check_there(const Entry& entry) const {
    if (entry.lost) {
        throw base::Error(base::ErrorKind::evicted,
                          read_once_
                              ? "it has been read, and its scratch space frees what has been "
                                "read once. Set it again, or delete it"
                              : "the server's memory was full. Set it again, or delete it");
    }
}

std::shared_ptr<const memory::Region> MemoryStorage::find(const std::string& key) {
    const base::ReadLock lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    if (found == catalog_.end()) {
        return nullptr;
    }
    check_there(found->second);
    found->second.note_use();
    return found->second.value;
}

std::optional<std::uint64_t> MemoryStorage::size(const std::string& key) {
    const base::ReadLock lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    return found == catalog_.end() ? std::nullopt : std::optional(found->second.value->size());
}

std::unique_ptr<Incoming> MemoryStorage::receive(const std::string& key, std::uint64_t size) {
    if (!spills()) {
        return receive_here(key, size, Quota::Pressure::fully);
    }
    try {
        return receive_here(key, size, Quota::Pressure::gently);
    } catch (const NoRoomError&) {  // it goes to the disk at once
    }
    shed_soon();
    return shedding_->receive(key, size,
                              [this, key, records = records_of_spilled(key)](
                                  std::shared_ptr<memory::Region> value, bool if_absent) {
                                  return put(key, std::move(value), records, if_absent);
                              });
}

// The key has no other place. So it has one in what arenas leave free, whatever else is there for
// a moment: what a session is sending has room beyond the limit, too.
std::shared_ptr<void> MemoryStorage::records_of_spilled(const std::string& key) {
    const Quota::Amount amount{.value = key_bytes(key), .more = entry_bytes(key), .replaces = true};
    const std::uint64_t bytes = amount.all();
    if (*spilled_keys_ += bytes; *spilled_keys_ <= quota_->limit() / kKeysPart) {
        quota_->take_anyway(amount);
        return {nullptr, [quota = quota_, keys = spilled_keys_, amount](std::nullptr_t) {
                    quota->give(amount);
                    *keys -= amount.all();
                }};
    }
    *spilled_keys_ -= bytes;
    const auto records = std::make_shared<Share>(quota_, true, Quota::Pressure::fully);
    records->add(key_bytes(key), entry_bytes(key));
    return records;
}

std::unique_ptr<Incoming> MemoryStorage::receive_here(const std::string& key, std::uint64_t size,
                                                      Quota::Pressure pressure) {
    const bool replaces = uses_reserve(key);
    const std::uint64_t keys = key_bytes(key);
    // What has no room now is refused before any of it comes.
    quota_->check({size + keys, more_for(key, size), replaces}, Quota::Counting::without_idle,
                  pressure);
    const auto records = std::make_shared<Share>(quota_, replaces || spills(), pressure);
    const auto share = std::make_shared<Share>(quota_, replaces, pressure);
    const auto region = allocate(share, key, size, pressure);
    try {  // now that the block is not idle any more
        const memory::Region::Extent memory = region->extent();
        const bool on_shelf = shelf_ != nullptr && shelf_->holds(*region);
        const std::uint64_t reused = on_shelf ? memory.present : 0;
        // What goes elsewhere if it has no room has all of it from the beginning.
        const std::uint64_t present = spills() ? size : std::min(size, memory.present);
        quota_->check({size + keys, entry_bytes(key) + memory.bytes - size, replaces, reused},
                      Quota::Counting::with_idle, pressure);
        records->add(keys, entry_bytes(key));
        share->add(present, memory.bytes - size, reused);
        return std::make_unique<MemoryIncoming>(*this, key, region, share, size - present, records);
    } catch (...) {
        note_incomplete(*region);
        throw;
    }
}

// On a shelf the share is taken until no reader has the value pinned any more. Where the shelf has
// no memory or descriptor for it, the value is one that nobody is shown.
std::shared_ptr<memory::Region> MemoryStorage::allocate(const std::shared_ptr<void>& share,
                                                        const std::string& key, std::uint64_t size,
                                                        Quota::Pressure pressure) {
    const auto memory = Quota::memory_of(quota_);
    for (bool more = shelf_ != nullptr; more; more = memory != nullptr && memory->shed(size)) {
        try {
            return shelf_->allocate(key, size, share);
        } catch (const base::Error& error) {
            if (error.kind() != base::ErrorKind::memory) {
                throw;
            }
            if (pressure == Quota::Pressure::gently) {
                throw NoRoomError(error.what());
            }
        }
    }
    return allocate_counted(share, size);
}

std::unique_ptr<Incoming> MemoryStorage::adopt(const std::string& key, std::uint64_t size,
                                               base::Fd&& file) {
    if (shelf_ == nullptr) {
        return nullptr;
    }
    const auto pressure = spills() ? Quota::Pressure::gently : Quota::Pressure::fully;
    const bool replaces = uses_reserve(key);
    const auto records = std::make_shared<Share>(quota_, replaces || spills(), pressure);
    auto share = std::make_shared<Share>(quota_, replaces, pressure);
    const std::uint64_t taken = shared::memory_of(file);
    const std::uint64_t block = shared::Shelf::capacity(key, size);
    try {
        records->add(key_bytes(key), entry_bytes(key));
        share->add(size, std::max(taken, block) - size);
    } catch (const NoRoomError&) {
        if (spills()) {
            return nullptr;  // its bytes can go to the disk
        }
        throw;
    }
    auto region = shelf_->adopt(key, size, std::move(file), std::move(share));
    return region == nullptr ? nullptr
                             : std::make_unique<MemoryIncoming>(*this, key, std::move(region),
                                                                nullptr, 0, records);
}

void MemoryStorage::note_incomplete(const memory::Region& value) const {
    if (shelf_ != nullptr) {
        shelf_->note_incomplete(value);
    }
}

// Whether a value may take what is kept for those that replace others. Where it can go elsewhere,
// it need not: that is for the keys of what does.
bool MemoryStorage::uses_reserve(const std::string& key) const {
    if (spills()) {
        return false;
    }
    const base::ReadLock lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    return found != catalog_.end() && !found->second.lost;
}

std::uint64_t MemoryStorage::bytes_of_entry(const std::string& key) {
    return key.size() + kEntryBytes;
}

std::uint64_t MemoryStorage::key_bytes(const std::string& key) const {
    return count_keys_ ? bytes_of_entry(key) : 0;
}

std::uint64_t MemoryStorage::entry_bytes(const std::string& key) const {
    return count_keys_ ? 0 : bytes_of_entry(key);
}

std::uint64_t MemoryStorage::more_for(const std::string& key, std::uint64_t size) const {
    const std::uint64_t more = entry_bytes(key);
    return shelf_ == nullptr ? more : more + shared::Shelf::capacity(key, size) - size;
}

base::MemoryCounts MemoryStorage::memory() const {
    look_again();
    const base::ReadLock lock(mutex_);
    base::MemoryCounts counts{.values = catalog_.size() - lost_,
                              .bytes = stored_,
                              .used = quota_->used(),
                              .limit = quota_->limit() == Quota::kNoLimit ? 0 : quota_->limit()};
    if (shedding_ != nullptr) {
        shedding_->count(counts);
    }
    return counts;
}

bool MemoryStorage::put(const std::string& key, std::shared_ptr<memory::Region> committed,
                        std::shared_ptr<void> records, bool if_absent) {
    committed->set_version(next_version());
    std::shared_ptr<const memory::Region> region = std::move(committed);
    // The old region may be large, and freeing it slow: that happens after the lock is gone.
    {
        const base::Lock lock(mutex_);
        check_open();
        const auto [at, added] = catalog_.try_emplace(key);
        Entry& entry = at->second;
        if (!added && if_absent) {
            check_there(entry);
            return false;
        }
        if (!added) {
            leave_counts(entry);
            order_.remove(entry);
        }
        entry.value.swap(region);
        entry.records.swap(records);
        entry.lost = false;
        stored_ += entry.value->size();
        enter(at);
        if (shelf_ != nullptr && shelf_->holds(*entry.value)) {
            shelf_->publish(*entry.value);
        } else if (shelf_ != nullptr) {
            shelf_->withdraw(key);
        }
    }
    if (spills()) {
        shed_soon();
    }
    return true;
}

// Into the order of what may go; not what has gone.
void MemoryStorage::enter(Catalog::iterator at) noexcept {
    Entry& entry = at->second;
    if (shedding_ != nullptr && !entry.lost && !entry.value->waits() &&
        shedding_->takes(at->first, entry.value->size())) {
        order_.add(entry, at->first, entry.value->extent().bytes, order_.recall(at->first));
    }
}

// Of what is replaced or removed.
void MemoryStorage::leave_counts(const Entry& entry) noexcept {
    lost_ -= entry.lost ? 1 : 0;
    stored_ -= entry.lost ? 0 : entry.value->size();
}

void MemoryStorage::remove(const std::string& key, const Consent& consent) {
    const auto held = consent ? consent(false) : std::unique_lock<base::Mutex>();
    std::shared_ptr<const memory::Region> old;
    std::shared_ptr<void> records;
    const base::Lock lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    if (found != catalog_.end()) {
        Entry& entry = found->second;
        leave_counts(entry);
        order_.remove(entry);
        old = std::move(entry.value);
        records = std::move(entry.records);
        if (shelf_ != nullptr) {
            shelf_->withdraw(key);
        }
        catalog_.erase(found);
    }
}

// The key stays, so that nobody takes the value for one that was never there.
void MemoryStorage::was_read(const std::string& key, std::uint64_t version) {
    if (!read_once_ || protocol::is_metadata(key)) {
        return;
    }
    std::shared_ptr<const memory::Region> region;  // freed after the lock is gone
    {
        const base::Lock lock(mutex_);
        const auto found = catalog_.find(key);
        if (found == catalog_.end() || found->second.lost ||
            found->second.value->version() != version) {
            return;  // it was set again meanwhile
        }
        Entry& entry = found->second;
        region = std::make_shared<FreedValue>(*entry.value);
        entry.value.swap(region);
        entry.lost = true;
        ++lost_;
        stored_ -= region->size();
        if (shelf_ != nullptr) {
            shelf_->withdraw(key);
        }
    }
}

// ---- what a full memory gives up ----

// Whether there would be room for so many bytes, if all went that may.
bool MemoryStorage::can_free(std::uint64_t bytes) const {
    const base::ReadLock lock(mutex_);
    return bytes <= quota_->limit() - std::min(quota_->limit(), quota_->taken()) + order_.bytes();
}

bool MemoryStorage::shed(std::uint64_t bytes) {
    bool any = false;
    bool full = false;
    for (Victim& one : choose(bytes)) {
        std::shared_ptr<memory::Region> stand_in;
        if (!full && !leaving_) {
            try {
                stand_in = shedding_->stand_in(one.key, *one.value);
            } catch (const std::exception&) {  // a full disk, or no memory
            }
            full = stand_in == nullptr;
        }
        any = exchange(one, stand_in) || any;
        one.value.reset();
    }
    if (shelf_ != nullptr) {
        shelf_->sweep();
        shelf_->give_back();  // others cannot use what lies in its arenas
    }
    return any;
}

std::vector<MemoryStorage::Victim> MemoryStorage::choose(std::uint64_t bytes) {
    Readers readers(shelf_.get());
    std::vector<Victim> victims;
    base::UniqueLock lock(mutex_);
    S3Fifo::Search search(order_, readers);
    std::uint64_t sum = 0;
    for (int looks = 1; sum < bytes && !search.over(); ++looks) {
        if (const S3Fifo::Entry* const found = search.look()) {
            sum += found->charge();
            victims.push_back({found->key(), static_cast<const Entry*>(found)->value});
        }
        if (looks % kMostUnderLock == 0) {
            lock.unlock();
            lock.lock();
        }
    }
    return victims;
}

// Puts it into the place of the value, unless that was replaced or removed meanwhile. Without one,
// the value stays.
bool MemoryStorage::exchange(const Victim& victim,
                             const std::shared_ptr<memory::Region>& stand_in) {
    const base::Lock lock(mutex_);
    const auto found = catalog_.find(victim.key);
    if (found == catalog_.end() || found->second.value != victim.value) {
        return false;
    }
    if (stand_in == nullptr) {
        enter(found);
        return false;
    }
    Entry& entry = found->second;
    entry.value = stand_in;
    if (shedding_->loses()) {
        entry.lost = true;
        ++lost_;
        stored_ -= victim.value->size();
    }
    if (shelf_ != nullptr) {
        shelf_->withdraw(victim.key);
    }
    shedding_->note_gone(victim.value->size());
    return true;
}

// What is to go before a new value needs the room.
std::uint64_t MemoryStorage::bytes_over() const {
    const std::uint64_t free = quota_->limit() / kFreePart;
    return free - std::min(free, quota_->room());
}

void MemoryStorage::shed_soon() noexcept try {
    if (bytes_over() > 0 && base::Clock::now() >= next_round_.load() && !leaving_ &&
        !wanted_.exchange(true) && !shedder_.try_post([this] { shed_what_is_over(); })) {
        wanted_ = false;  // there is no thread
    }
} catch (const std::exception&) {  // for want of memory: the next value asks again
    wanted_ = false;
}

void MemoryStorage::shed_what_is_over() {
    wanted_ = false;  // what is put from now on asks for another round
    while (const std::uint64_t over = leaving_ ? 0 : bytes_over()) {
        if (!shed(std::min(over, kRoundBytes))) {
            next_round_ = base::Clock::now() + kPause;
            return;
        }
    }
}

// ---- listings ----

Page MemoryStorage::list(const std::string& prefix, bool delimited, const std::string& cursor,
                         std::size_t max_bytes, const Pace& pace) {
    Page page;
    page.cursor = std::max(prefix, cursor);
    std::size_t left = std::min(max_bytes, kMostNames);
    while (list_some(page, prefix, delimited, left)) {
        if (pace) {
            pace();
        }
    }
    return page;
}

// Goes on from the page's cursor: whether there is more to be listed, and room for it.
bool MemoryStorage::list_some(Page& page, const std::string& prefix, bool delimited,
                              std::size_t& left) const {
    const base::ReadLock lock(mutex_);
    check_open();
    auto at = catalog_.lower_bound(page.cursor);
    for (int looked = 0; at != catalog_.end() && at->first.starts_with(prefix); ++looked) {
        if (looked == kMostUnderLock) {
            page.cursor = at->first;
            return true;
        }
        std::string name = at->first;
        auto next = std::next(at);
        bool listed = false;
        if (delimited) {
            const std::size_t slash = name.find('/', prefix.size());
            if (slash != std::string::npos) {
                name.resize(slash);
                listed = catalog_.contains(name);         // "a" itself came before "a/b"
                next = catalog_.lower_bound(name + "0");  // "0" is the byte after "/"
            }
            name.erase(0, prefix.size());
        }
        if (!listed) {
            const std::size_t bytes = name.size() + 2;
            if (bytes > left && !page.names.empty()) {
                page.cursor = at->first;
                return false;
            }
            left -= std::min(left, bytes);
            page.names.push_back(std::move(name));
            if (!delimited) {
                page.sizes.push_back(at->second.value->size());
            }
        }
        at = next;
    }
    page.cursor.clear();
    return false;
}

}  // namespace ucxstore::storage

#include "storage/memory.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "shared/sealed.hpp"
#include "storage/version.hpp"

namespace ucxstore {
namespace {

// A share of a quota, for as long as it lives. On one thread, until nothing is added any more.
class Share {
  public:
    // `replaces`: another value.
    Share(std::shared_ptr<Quota> quota, bool replaces)
        : quota_(std::move(quota)), taken_{.replaces = replaces} {}
    void add(std::uint64_t value, std::uint64_t more = 0, std::uint64_t reused = 0) {
        quota_->take({value, more, taken_.replaces, reused});
        taken_.value += value;
        taken_.more += more;
        taken_.reused += reused;
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { quota_->give(taken_); }

  private:
    const std::shared_ptr<Quota> quota_;
    Quota::Amount taken_;
};

struct CountedRegion {
    std::shared_ptr<Share> share;  // first, and so last to go
    std::shared_ptr<Region> region;
};

// What an entry takes beside its key and its value, at the most: nodes and control blocks.
constexpr std::uint64_t kEntryBytes = 512;

// The bytes of names in a page.
constexpr std::size_t kMostNames = 256 * 1024;

// So many entries are looked at under the lock: writers wait for that, and with them all sessions
// of their thread. It takes some 50 us.
constexpr int kMostUnderLock = 256;

std::shared_ptr<Region> allocate_counted(std::shared_ptr<Share> share, std::uint64_t size) {
    auto counted = std::make_shared<CountedRegion>(
        CountedRegion{std::move(share), allocate_region(size, Kept::for_long)});
    Region* region = counted->region.get();
    return {std::move(counted), region};
}

// On a shelf the share is taken until no reader has the value pinned any more. Where the shelf has
// no memory or descriptor for it, the value is one that nobody is shown.
std::shared_ptr<Region> allocate_on(shared::Shelf& shelf, const std::shared_ptr<Share>& share,
                                    const std::string& key, std::uint64_t size) {
    try {
        return shelf.allocate(key, size, share);
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::memory) {
            throw;
        }
    }
    return allocate_counted(share, size);
}

class MemoryIncoming : public Incoming {
  public:
    // `share`: what is to grow with the bytes that come, by `uncounted` of them; nullptr where it
    // has them all.
    MemoryIncoming(MemoryStorage& storage, std::string key, std::shared_ptr<Region> region,
                   std::shared_ptr<Share> share, std::uint64_t uncounted)
        : storage_(storage),
          key_(std::move(key)),
          region_(std::move(region)),
          share_(std::move(share)),
          uncounted_(uncounted) {}
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
        share_->add(more);
        uncounted_ -= more;
    }
    std::byte* data() override { return region_->data(); }
    const Region* region() const override { return region_.get(); }
    bool commit(bool if_absent) override {
        if (uncounted_ > 0) {
            expect(uncounted_);
        }
        share_.reset();
        return storage_.put(key_, std::move(region_), if_absent);
    }

  private:
    MemoryStorage& storage_;
    std::string key_;
    std::shared_ptr<Region> region_;
    std::shared_ptr<Share> share_;
    std::uint64_t uncounted_;
};

}  // namespace

MemoryStorage::MemoryStorage(std::shared_ptr<Quota> quota, bool count_keys,
                             std::shared_ptr<shared::Shelf> shelf)
    : quota_(std::move(quota)), count_keys_(count_keys), shelf_(std::move(shelf)) {
    if (shelf_ != nullptr) {
        reclaim_ = quota_->add_reclaim([weak = std::weak_ptr(shelf_)](bool needed) {
            const auto one = weak.lock();
            if (one == nullptr) {
                return;
            }
            one->sweep(needed);
            if (needed) {
                one->give_back();
            }
        });
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
    const std::lock_guard lock(mutex_);
    closed_ = std::move(why);
    stored_ = 0;
    if (shelf_ != nullptr) {
        shelf_->end();
    }
    return std::exchange(catalog_, {});
}

void MemoryStorage::check_open() const {
    if (!closed_.empty()) {
        throw Error(ErrorKind::scratch_ended, closed_);
    }
}

std::shared_ptr<const Region> MemoryStorage::find(const std::string& key) {
    const std::shared_lock lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    return found == catalog_.end() ? nullptr : found->second;
}

std::optional<std::uint64_t> MemoryStorage::size(const std::string& key) {
    const auto region = find(key);
    return region == nullptr ? std::nullopt : std::optional(region->size());
}

std::unique_ptr<Incoming> MemoryStorage::receive(const std::string& key, std::uint64_t size) {
    const bool replaces = has(key);
    const std::uint64_t keys = key_bytes(key);
    // What has no room now is refused before any of it comes.
    quota_->check({size + keys, more_for(key, size), replaces});
    const auto share = std::make_shared<Share>(quota_, replaces);
    const auto region =
        shelf_ == nullptr ? allocate_counted(share, size) : allocate_on(*shelf_, share, key, size);
    try {  // now that the block is not idle any more
        const Region::Extent memory = region->extent();
        const bool on_shelf = shelf_ != nullptr && shelf_->holds(*region);
        const std::uint64_t reused = on_shelf ? memory.present : 0;
        const std::uint64_t present = std::min(size, memory.present);
        const std::uint64_t more = entry_bytes(key) + memory.bytes - size;
        quota_->check({size + keys, more, replaces, reused}, Quota::Counting::with_idle);
        share->add(present + keys, more, reused);
        return std::make_unique<MemoryIncoming>(*this, key, region, share, size - present);
    } catch (...) {
        note_incomplete(*region);
        throw;
    }
}

std::unique_ptr<Incoming> MemoryStorage::adopt(const std::string& key, std::uint64_t size,
                                               Fd&& file) {
    if (shelf_ == nullptr) {
        return nullptr;
    }
    auto share = std::make_shared<Share>(quota_, has(key));
    const std::uint64_t taken = shared::memory_of(file);
    const std::uint64_t block = shared::Shelf::capacity(key, size);
    share->add(size + key_bytes(key), more_for(key, size) + std::max(taken, block) - block);
    auto region = shelf_->adopt(key, size, std::move(file), std::move(share));
    return region == nullptr
               ? nullptr
               : std::make_unique<MemoryIncoming>(*this, key, std::move(region), nullptr, 0);
}

void MemoryStorage::note_incomplete(const Region& value) const {
    if (shelf_ != nullptr) {
        shelf_->note_incomplete(value);
    }
}

bool MemoryStorage::has(const std::string& key) const {
    const std::shared_lock lock(mutex_);
    check_open();
    return catalog_.contains(key);
}

std::uint64_t MemoryStorage::key_bytes(const std::string& key) const {
    return count_keys_ ? key.size() + kEntryBytes : 0;
}

std::uint64_t MemoryStorage::entry_bytes(const std::string& key) const {
    return count_keys_ ? 0 : key.size() + kEntryBytes;
}

std::uint64_t MemoryStorage::more_for(const std::string& key, std::uint64_t size) const {
    const std::uint64_t more = entry_bytes(key);
    return shelf_ == nullptr ? more : more + shared::Shelf::capacity(key, size) - size;
}

MemoryCounts MemoryStorage::memory() const {
    look_again();
    const std::shared_lock lock(mutex_);
    return {.values = catalog_.size(),
            .bytes = stored_,
            .used = quota_->used(),
            .limit = quota_->limit() == Quota::kNoLimit ? 0 : quota_->limit()};
}

bool MemoryStorage::put(const std::string& key, std::shared_ptr<Region> committed, bool if_absent) {
    committed->set_version(next_version());
    std::shared_ptr<const Region> region = std::move(committed);
    // The old region may be large, and freeing it slow: that happens after the lock is gone.
    const std::lock_guard lock(mutex_);
    check_open();
    auto [at, added] = catalog_.try_emplace(key);
    if (!added && if_absent) {
        return false;
    }
    at->second.swap(region);
    stored_ += at->second->size() - (region == nullptr ? 0 : region->size());
    if (shelf_ != nullptr && shelf_->holds(*at->second)) {
        shelf_->publish(*at->second);
    } else if (shelf_ != nullptr) {
        shelf_->withdraw(key);
    }
    return true;
}

void MemoryStorage::remove(const std::string& key, const Consent& consent) {
    const auto held = consent ? consent(false) : std::unique_lock<Mutex>();
    std::shared_ptr<const Region> old;
    const std::lock_guard lock(mutex_);
    check_open();
    const auto found = catalog_.find(key);
    if (found != catalog_.end()) {
        old = std::move(found->second);
        stored_ -= old->size();
        if (shelf_ != nullptr) {
            shelf_->withdraw(key);
        }
        catalog_.erase(found);
    }
}

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
    const std::shared_lock lock(mutex_);
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
                page.sizes.push_back(at->second->size());
            }
        }
        at = next;
    }
    page.cursor.clear();
    return false;
}

}  // namespace ucxstore

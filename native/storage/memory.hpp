// Memory storage: values in this process's memory, by key.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <map>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "shared/shelf.hpp"
#include "storage/quota.hpp"
#include "storage/s3_fifo.hpp"
#include "storage/shedding.hpp"
#include "storage/storage.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::storage {

class MemoryStorage : public Storage {
  public:
    // `limit` bounds the memory itself: a value counts while it arrives, and, once replaced or
    // removed, until its last reader lets go of it.
    explicit MemoryStorage(std::uint64_t limit = std::numeric_limits<std::uint64_t>::max())
        : MemoryStorage(std::make_shared<Quota>(limit)) {}
    // `count_keys`: keys and entries count, too. For values of few bytes. `shelf`: where values are
    // kept, for processes of this host to see; memory of this process alone where it is nullptr.
    // `shedding`: what becomes of values that have no room; nullptr: new ones are refused.
    // `read_once`: a value is lost once it was read, but for zarr's metadata.
    explicit MemoryStorage(std::shared_ptr<Quota> quota, bool count_keys = false,
                           std::shared_ptr<shared::Shelf> shelf = nullptr,
                           std::unique_ptr<Shedding> shedding = nullptr, bool read_once = false);
    MemoryStorage(const MemoryStorage&) = delete;
    MemoryStorage& operator=(const MemoryStorage&) = delete;
    ~MemoryStorage() override;

    // Throws Error(evicted) where the value was lost: for want of room, or as it was read.
    std::shared_ptr<const memory::Region> find(const std::string& key) override;
    // Also of a value that was lost.
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    std::unique_ptr<Incoming> adopt(const std::string& key, std::uint64_t size,
                                    base::Fd&& file) override;
    void remove(const std::string& key, const Consent& consent = {}) override;
    void was_read(const std::string& key, std::uint64_t version) override;
    // With the keys of values that were lost.
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes, const Pace& pace = {}) override;

    std::shared_ptr<shared::Shelf> shelf() const override { return shelf_; }
    base::MemoryCounts memory() const override;
    std::shared_ptr<Quota> memory_limit() const override { return Quota::memory_of(quota_); }

    // Bytes of values that lie in memory, and that somebody may still read.
    std::uint64_t held() const;
    const std::shared_ptr<Quota>& quota() const { return quota_; }
    // What a key takes beside its value, at the most: itself, nodes and control blocks.
    static std::uint64_t bytes_of_entry(const std::string& key);

    // What is kept under a key.
    struct Entry : S3Fifo::Entry {
        std::shared_ptr<const memory::Region> value;
        std::shared_ptr<void> records;  // what counts for the key
        bool lost = false;              // the value has no bytes any more
    };
    using Catalog = std::map<std::string, Entry, std::less<>>;

    // Nobody sees the values any more, and every later call throws Error(scratch_ended) with this
    // text, which is not empty. Returns the values, as freeing them may take long.
    Catalog close(std::string why);
    // Sheds nothing any more, and removes what lies outside of memory. Nobody uses it from then on.
    void leave() noexcept;

    // For Incoming: its region was not filled, and is not put under a key.
    void note_incomplete(const memory::Region& value) const;
    // Has what readers have pinned looked at soon.
    void look_again() const;
    // For Incoming: puts the region under the key, which takes `records`.
    bool put(const std::string& key, std::shared_ptr<memory::Region> committed,
             std::shared_ptr<void> records, bool if_absent);

  private:
    // A value that is to go.
    struct Victim {
        std::string key;
        std::shared_ptr<const memory::Region> value;
    };
    class Readers;

    std::unique_ptr<Incoming> receive_here(const std::string& key, std::uint64_t size,
                                           Quota::Pressure pressure);
    std::shared_ptr<memory::Region> allocate(const std::shared_ptr<void>& share,
                                             const std::string& key, std::uint64_t size,
                                             Quota::Pressure pressure);

    // What counts for the key of a value that goes to a file at once. Throws NoRoomError.
    std::shared_ptr<void> records_of_spilled(const std::string& key);

    // Gives up values of about so many bytes; false where none may go.
    bool shed(std::uint64_t bytes);
    bool can_free(std::uint64_t bytes) const;
    std::vector<Victim> choose(std::uint64_t bytes);
    bool exchange(const Victim& victim, const std::shared_ptr<memory::Region>& stand_in);
    std::uint64_t bytes_over() const;
    void shed_soon() noexcept;
    void shed_what_is_over();

    void check_open() const REQUIRES_SHARED(mutex_);
    void check_there(const Entry& entry) const REQUIRES_SHARED(mutex_);
    void enter(Catalog::iterator at) noexcept REQUIRES(mutex_);
    void leave_counts(const Entry& entry) noexcept REQUIRES(mutex_);

    bool list_some(Page& page, const std::string& prefix, bool delimited, std::size_t& left) const;
    bool uses_reserve(const std::string& key) const;
    bool spills() const { return shedding_ != nullptr && !shedding_->loses(); }
    // What a key takes beside its value, as far as that counts for any quota.
    std::uint64_t key_bytes(const std::string& key) const;
    // The same, as far as only a limit of memory itself counts that.
    std::uint64_t entry_bytes(const std::string& key) const;
    // What a value needs besides, for a limit of memory itself, where it lies on the shelf.
    std::uint64_t more_for(const std::string& key, std::uint64_t size) const;

    const std::shared_ptr<Quota> quota_;
    const bool count_keys_;
    const std::shared_ptr<shared::Shelf> shelf_;
    const std::unique_ptr<Shedding> shedding_;
    const bool read_once_;
    const std::shared_ptr<std::atomic<std::uint64_t>> spilled_keys_ =
        std::make_shared<std::atomic<std::uint64_t>>(0);  // bytes of records_of_spilled()
    std::shared_ptr<void> reclaim_;                       // of what the shelf keeps for readers
    mutable base::SharedMutex mutex_;
    Catalog catalog_ GUARDED_BY(mutex_);
    S3Fifo order_ GUARDED_BY(mutex_);              // of the values that may go
    std::uint64_t stored_ GUARDED_BY(mutex_) = 0;  // bytes of the values in the catalog
    std::uint64_t lost_ GUARDED_BY(mutex_) = 0;    // entries that are
    std::string closed_ GUARDED_BY(mutex_);        // why; "" where it is not

    const pid_t pid_ = getpid();
    std::atomic<bool> leaving_ = false;
    std::atomic<bool> wanted_ = false;           // a round of the shedder that has not begun
    std::atomic<base::TimePoint> next_round_{};  // not before
    threads::WorkerPool shedder_{1, 0, "ucxstore-spill"};
    std::shared_ptr<void> shed_;  // what asks for it; goes first
};

}  // namespace ucxstore::storage

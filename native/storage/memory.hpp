// Memory storage: values in this process's memory, by key.
#pragma once

#include <limits>
#include <map>

#include "base/mutex.hpp"
#include "shared/shelf.hpp"
#include "storage/quota.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

class MemoryStorage : public Storage {
  public:
    // `limit` bounds the memory itself: a value counts while it arrives, and, once replaced or
    // removed, until its last reader lets go of it.
    explicit MemoryStorage(std::uint64_t limit = std::numeric_limits<std::uint64_t>::max())
        : MemoryStorage(std::make_shared<Quota>(limit)) {}
    // `count_keys`: keys and entries count, too. For values of few bytes. `shelf`: where values are
    // kept, for processes of this host to see; memory of this process alone where it is nullptr.
    explicit MemoryStorage(std::shared_ptr<Quota> quota, bool count_keys = false,
                           std::shared_ptr<shared::Shelf> shelf = nullptr);
    std::shared_ptr<const Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    std::unique_ptr<Incoming> adopt(const std::string& key, std::uint64_t size, Fd&& file) override;
    void remove(const std::string& key, const Consent& consent = {}) override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes, const Pace& pace = {}) override;

    std::shared_ptr<shared::Shelf> shelf() const override { return shelf_; }
    MemoryCounts memory() const override;
    std::shared_ptr<Quota> memory_limit() const override { return Quota::memory_of(quota_); }

    // Bytes of values that lie in memory, and that somebody may still read.
    std::uint64_t held() const;
    const std::shared_ptr<Quota>& quota() const { return quota_; }

    using Catalog = std::map<std::string, std::shared_ptr<const Region>, std::less<>>;

    // Nobody sees the values any more, and every later call throws Error(scratch_ended) with this
    // text, which is not empty. Returns the values, as freeing them may take long.
    Catalog close(std::string why);

    // For Incoming: its region was not filled, and is not put under a key.
    void note_incomplete(const Region& value) const;
    // Has what readers have pinned looked at soon.
    void look_again() const;
    // For Incoming: puts the region under the key.
    bool put(const std::string& key, std::shared_ptr<Region> committed, bool if_absent);

  private:
    void check_open() const;  // under the lock
    bool list_some(Page& page, const std::string& prefix, bool delimited, std::size_t& left) const;
    bool has(const std::string& key) const;
    // What a key takes beside its value, as far as that counts for any quota.
    std::uint64_t key_bytes(const std::string& key) const;
    // The same, as far as only a limit of memory itself counts that.
    std::uint64_t entry_bytes(const std::string& key) const;
    // What a value needs besides, for a limit of memory itself, where it lies on the shelf.
    std::uint64_t more_for(const std::string& key, std::uint64_t size) const;

    const std::shared_ptr<Quota> quota_;
    const bool count_keys_;
    const std::shared_ptr<shared::Shelf> shelf_;
    std::shared_ptr<void> reclaim_;  // of what the shelf keeps for readers
    mutable SharedMutex mutex_;
    Catalog catalog_;
    std::uint64_t stored_ = 0;  // bytes of the values in it
    std::string closed_;        // why; "" where it is not
};

}  // namespace ucxstore

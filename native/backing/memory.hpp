// Values in this process's memory, by key.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <shared_mutex>

#include "backing.hpp"

namespace ucxstore {

// How many bytes values take, and may take. Each value holds a share of it, and outlives the
// backing where a reader has it pinned.
class Quota {
  public:
    explicit Quota(std::uint64_t limit) : limit_(limit) {}
    // Throws Error(backing) where that is more than is left.
    void take(std::uint64_t size);
    void give(std::uint64_t size) { taken_ -= size; }
    std::uint64_t taken() const { return taken_; }

  private:
    const std::uint64_t limit_;
    std::atomic<std::uint64_t> taken_ = 0;
};

class MemoryBacking : public Backing {
  public:
    // What is arriving counts, and so does a value that was replaced or removed until its last
    // reader lets go of it: `limit` bounds the memory itself.
    explicit MemoryBacking(std::uint64_t limit = std::numeric_limits<std::uint64_t>::max())
        : quota_(std::make_shared<Quota>(limit)) {}
    std::shared_ptr<const Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    void remove(const std::string& key) override;
    std::uint64_t remove_prefix(const std::string& prefix) override;
    Measure measure(const std::string& prefix, bool any) override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes) override;

    // Bytes of values that lie in memory.
    std::uint64_t held() const { return quota_->taken(); }

    // For Incoming: the swap of regions under the key.
    bool put(const std::string& key, std::shared_ptr<Region> committed, bool if_absent);

  private:
    using Catalog = std::map<std::string, std::shared_ptr<const Region>, std::less<>>;

    const std::shared_ptr<Quota> quota_;
    std::shared_mutex mutex_;
    Catalog catalog_;
};

}  // namespace ucxstore

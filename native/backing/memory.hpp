// Values in this process's memory, by key.
#pragma once

#include <map>
#include <shared_mutex>

#include "backing.hpp"

namespace ucxstore {

class MemoryBacking : public Backing {
  public:
    std::shared_ptr<const Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    void remove(const std::string& key) override;
    std::uint64_t remove_prefix(const std::string& prefix) override;
    Measure measure(const std::string& prefix, bool any) override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes) override;

    // For Incoming: the swap of regions under the key.
    bool put(const std::string& key, std::shared_ptr<Region> committed, bool if_absent);

  private:
    using Catalog = std::map<std::string, std::shared_ptr<const Region>, std::less<>>;

    std::shared_mutex mutex_;
    Catalog catalog_;
};

}  // namespace ucxstore

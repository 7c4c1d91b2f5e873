// Directory storage: values as files, as zarr's LocalStore has them. A key is a path under the
// directory.
#pragma once

#include "files/directory_root.hpp"
#include "storage/committer.hpp"
#include "storage/reclaimer.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

class DirectoryStorage : public Storage {
  public:
    // The most memory for the names of one listing.
    static constexpr std::size_t kListingBytes = 8 << 20;

    explicit DirectoryStorage(const std::string& root, Durability durability = Durability::none,
                              std::size_t listing_bytes = kListingBytes);

    std::shared_ptr<const Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    void remove(const std::string& key) override;
    void removed(const std::vector<std::string>& keys) override;
    bool removing_waits() const override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes, const Pace& pace = {}) override;
    int root() const override { return root_.is_kept_by_kernel() ? root_.descriptor() : -1; }

  private:
    DirectoryRoot root_;
    const std::size_t listing_bytes_;
    Reclaimer reclaimer_;
    Committer committer_;
};

}  // namespace ucxstore

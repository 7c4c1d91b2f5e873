// Directory storage: values as files, as zarr's LocalStore has them. A key is a path under the
// directory.
#pragma once

#include "files/directory_root.hpp"
#include "files/writers.hpp"
#include "storage/committer.hpp"
#include "storage/storage.hpp"
#include "storage/sweep.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::storage {

class DirectoryStorage : public Storage {
  public:
    // The most memory for the names of one listing.
    static constexpr std::size_t kListingBytes = 8 << 20;

    // `writers`: how the directory is claimed. Throws Error(storage) where another server has it.
    explicit DirectoryStorage(const std::string& root, Durability durability = Durability::none,
                              files::Writers::Mode writers = files::Writers::Mode::none,
                              std::size_t listing_bytes = kListingBytes);

    std::shared_ptr<const memory::Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    void remove(const std::string& key, const Consent& consent = {}) override;
    void removed(const std::vector<std::string>& keys) override;
    bool removing_waits() const override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes, const Pace& pace = {}) override;
    // Leaves the directory to other servers: nothing is written any more.
    void leave() { writers_.leave(); }
    int root() const override { return root_.is_kept_by_kernel() ? root_.descriptor() : -1; }
    int descriptor() const { return root_.descriptor(); }

  private:
    files::DirectoryRoot root_;
    files::Writers writers_;
    const std::size_t listing_bytes_;
    threads::Reclaimer reclaimer_;
    Committer committer_;
    Sweep sweep_;
};

}  // namespace ucxstore::storage

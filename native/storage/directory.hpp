// Directory storage: values as files, as zarr's LocalStore has them. A key is a path under the
// directory.
#pragma once

#include "files/directory_root.hpp"
#include "storage/reclaimer.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

class DirectoryStorage : public Storage {
  public:
    explicit DirectoryStorage(const std::string& root) : root_(root) {}

    std::shared_ptr<const Region> find(const std::string& key) override;
    std::optional<std::uint64_t> size(const std::string& key) override;
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) override;
    void remove(const std::string& key) override;
    std::uint64_t remove_prefix(const std::string& prefix) override;
    Measure measure(const std::string& prefix, bool any) override;
    Page list(const std::string& prefix, bool delimited, const std::string& cursor,
              std::size_t max_bytes) override;
    int root() const override { return root_.is_kept_by_kernel() ? root_.descriptor() : -1; }

  private:
    DirectoryRoot root_;
    Reclaimer reclaimer_;
};

}  // namespace ucxstore

// Memory with a value in it. Whoever holds the shared_ptr has it pinned: a value is never changed
// in place, a new one for the same key is a new region, and the old one dies with its last reader.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ucxstore {

class Region {
  public:
    virtual ~Region() = default;
    virtual std::byte* data() const = 0;
    virtual std::uint64_t size() const = 0;

    // Whether it lies in several parts. Then data() is only where offsets count from, and pieces
    // from there must be located before they are sent.
    virtual bool pieced() const { return false; }
    virtual void locate(std::vector<ucp_dt_iov_t>&) const {}

    // Tells the value from any other that its key has had; never 0 once a storage has set it, which
    // it does before anybody finds the value.
    std::uint64_t version() const { return version_; }
    void set_version(std::uint64_t version) { version_ = version; }

  private:
    std::uint64_t version_ = 0;
};

// Ordinary memory, not initialised. Large regions are of huge pages where the kernel has them, and
// recycled (recycler.hpp). Throws Error(storage) where there is not enough.
std::shared_ptr<Region> allocate_region(std::uint64_t size);

}  // namespace ucxstore

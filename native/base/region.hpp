// Regions: pinned memory with a value in it. Whoever holds the shared_ptr has it pinned: a value is
// never changed in place, a new one for the same key is a new region, and the old one dies with its
// last reader.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ucxstore {

// What a cache can keep: it has a size, and may be other than memory.
class Sized {
  public:
    virtual ~Sized() = default;
    virtual std::uint64_t size() const = 0;
};

class Region : public Sized {
  public:
    virtual std::byte* data() const = 0;

    // Whether the memory is in several pieces. Then data() is no memory: offsets count from it, and
    // locate() replaces pieces that begin there by the memory that holds them.
    virtual bool pieced() const { return false; }
    virtual void locate(std::vector<ucp_dt_iov_t>&) const {}

    // Whether the memory may only be read.
    virtual bool read_only() const { return false; }

    // A number that no other value of the key has had. A storage sets it, and never to 0, before
    // anybody can find the value.
    std::uint64_t version() const { return version_; }
    void set_version(std::uint64_t version) { version_ = version; }

  private:
    std::uint64_t version_ = 0;
};

// Ordinary memory, not initialised. Large regions are of huge pages where the kernel has them, and
// recycled (recycler.hpp). Throws Error(memory) where there is not enough.
std::shared_ptr<Region> allocate_region(std::uint64_t size);

}  // namespace ucxstore

// Regions: pinned memory with a value in it. Whoever holds the shared_ptr has it pinned: a value is
// never changed in place, a new one for the same key is a new region, and the old one dies with its
// last reader.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/kept_sums.hpp"
#include "memory/recycler.hpp"

namespace ucxstore::memory {

// What a cache can keep: it has a size, and may be other than memory.
class Sized {
  public:
    virtual ~Sized() = default;
    virtual std::uint64_t size() const = 0;
};

class Region : public Sized {
  public:
    Region() = default;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() override { delete sums_.load(); }

    virtual std::byte* data() const = 0;

    // Whether the memory is in several pieces, or there is none before the bytes are read. Then
    // data() is no memory: offsets count from it, and locate() replaces pieces that begin there by
    // the memory that holds them. It returns what owns that memory; nullptr for this region. Throws
    // Error(storage, memory).
    virtual bool pieced() const { return false; }
    virtual std::shared_ptr<const Region> locate(std::vector<ucp_dt_iov_t>&) const {
        return nullptr;
    }
    // How many bytes locate() should be asked for at once, at the most.
    virtual std::uint64_t most_at_once() const { return ~std::uint64_t{0}; }

    // Whether the bytes are not in memory, and locate() reads them. Who copies them anyway spares
    // that memory by read(): it fills `target` with the bytes of the pieces. Throws Error(storage).
    virtual bool unread() const { return false; }
    virtual void read(std::span<const ucp_dt_iov_t>, std::byte*) const {}
    // Whether locate() waits for a disk, and so is for no progress thread.
    virtual bool waits() const { return false; }

    // The memory that it lies in, all of which is its own, where that is more than its bytes.
    // `present` are those that are memory already when it is made, before anybody writes to them.
    struct Extent {
        std::uint64_t bytes;
        std::uint64_t present;
    };
    virtual Extent extent() const { return {size(), 0}; }

    // Whether the memory may only be read.
    virtual bool read_only() const { return false; }
    // Whether a server of this host has taken the memory back, so that other bytes may be there. To
    // be asked after they were read.
    virtual bool lost() const { return false; }

    // A number that no other value of the key has had. A storage sets it, and never to 0, before
    // anybody can find the value.
    std::uint64_t version() const { return version_; }
    void set_version(std::uint64_t version) { version_ = version; }
    // Whether a later value of the key could have the same version after all, as this one is so
    // new: what is made of it is not to be kept under the version.
    bool version_in_doubt() const { return in_doubt_; }
    void doubt_version() { in_doubt_ = true; }

    // The CRC32C of these bytes, which do not change any more, and lie in one piece of memory. It
    // is kept, where that is worth it. Any thread.
    std::uint32_t checksum(std::uint64_t begin, std::uint64_t length) const;

  private:
    std::uint64_t version_ = 0;
    bool in_doubt_ = false;
    mutable std::atomic<KeptSums*> sums_ = nullptr;
};

// Ordinary memory, not initialised. Large regions are of huge pages where the kernel has them, and
// recycled (recycler.hpp). Throws Error(memory) where there is not enough.
std::shared_ptr<Region> allocate_region(std::uint64_t size, Kept kept = Kept::briefly);

}  // namespace ucxstore::memory

// Evicting: values of a full memory are lost, those of a cache alone. Their keys are remembered, so
// that nobody takes a lost value for one that was never there: zarr reads a missing chunk as its
// fill value.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/mutex.hpp"
#include "storage/shedding.hpp"

namespace ucxstore::storage {

class Evicting : public Shedding {
  public:
    // `below`: keys that begin with one of these are a cache, but for zarr's metadata. `limit`: of
    // the memory, of which a part may go for remembered keys. Beyond that, nothing is evicted.
    Evicting(std::vector<std::string> below, std::uint64_t limit);

    bool takes(const std::string& key, std::uint64_t size) const override;
    std::shared_ptr<memory::Region> stand_in(const std::string& key,
                                             const memory::Region& value) override;
    bool loses() const override { return true; }
    void note_gone(std::uint64_t bytes) override;
    void count(base::MemoryCounts& counts) const override;

  private:
    // What is remembered now. Those that are remembered may outlive the storage.
    struct Remembered {
        std::atomic<std::uint64_t> keys = 0;
        std::atomic<std::uint64_t> bytes = 0;
    };
    class LostValue;

    const std::vector<std::string> below_;
    const std::uint64_t most_bytes_;
    const std::shared_ptr<Remembered> remembered_ = std::make_shared<Remembered>();
    std::atomic<std::uint64_t> evicted_ = 0;
    std::atomic<std::uint64_t> evicted_bytes_ = 0;
    base::Mutex mutex_;
    base::log::Evictions log_ GUARDED_BY(mutex_){"memory"};
};

}  // namespace ucxstore::storage

// Spilling: values of a full memory go to files of a directory, and are read from there. Only this
// process knows what is in the files: nothing outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/shedding.hpp"

namespace ucxstore::storage {

class Spilling : public Shedding {
  public:
    // The directory exists, and nobody else uses it. `hint` follows the text of a refusal. Throws
    // Error(storage).
    explicit Spilling(const std::string& directory, std::string hint = {});

    bool takes(const std::string& key, std::uint64_t size) const override;
    // Waits for the disk.
    std::shared_ptr<memory::Region> stand_in(const std::string& key,
                                             const memory::Region& value) override;
    bool loses() const override { return false; }
    std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size, Put put) override;
    void leave() noexcept override;
    void count(base::MemoryCounts& counts) const override;

  private:
    struct Folder;
    class SpilledValue;
    class ArrivingFile;

    const std::shared_ptr<Folder> folder_;
};

}  // namespace ucxstore::storage

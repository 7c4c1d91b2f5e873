// Shedding: what becomes of values for which a full memory has no room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/counters.hpp"
#include "memory/region.hpp"
#include "storage/storage.hpp"

namespace ucxstore::storage {

// Called from any thread.
class Shedding {
  public:
    Shedding() = default;
    Shedding(const Shedding&) = delete;
    Shedding& operator=(const Shedding&) = delete;
    virtual ~Shedding() = default;

    // Whether the value of this key may go.
    virtual bool takes(const std::string& key, std::uint64_t size) const = 0;
    // What the key has in the place of its value from now on, with the same size and version.
    // nullptr where there is no room for that now: then the value stays. It throws for the same
    // reasons.
    virtual std::shared_ptr<memory::Region> stand_in(const std::string& key,
                                                     const memory::Region& value) = 0;
    // A value of so many bytes has gone.
    virtual void note_gone(std::uint64_t) {}
    // Whether it is lost: what stands in its place has no bytes.
    virtual bool loses() const = 0;

    // What follows is for what loses nothing. There stand_in() waits for a disk. So values go ahead
    // of need, on a thread of the storage's own, and one that comes too soon is received by this.
    // `put` puts it under its key, as Incoming::commit() says. Throws NoRoomError.
    using Put = std::function<bool(std::shared_ptr<memory::Region> value, bool if_absent)>;
    virtual std::unique_ptr<Incoming> receive(const std::string&, std::uint64_t, Put) {
        return nullptr;
    }
    // Keeps nothing any more: what it has put in the place of values is gone.
    virtual void leave() noexcept {}

    // Adds what it has done.
    virtual void count(base::MemoryCounts& counts) const = 0;
};

}  // namespace ucxstore::storage

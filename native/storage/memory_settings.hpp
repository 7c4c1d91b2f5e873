// How a server keeps values in memory, as it is told to.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "storage/memory.hpp"

namespace ucxstore::storage {

struct MemorySettings {
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
    // Whether other processes may be let see the values, and how many bytes they may hold.
    bool visible = false;
    std::uint64_t mapped_limit = std::numeric_limits<std::uint64_t>::max();
    // With this, `limit` bounds the memory itself: see Quota::of_memory().
    std::optional<std::string> hint;
    // What becomes of values that have no room: see Evicting and Spilling. Only one of them is set.
    std::optional<std::vector<std::string>> evict;
    std::optional<std::string> spill;
};

// Throws Error(storage).
MemoryStorage make_memory(MemorySettings settings);

}  // namespace ucxstore::storage

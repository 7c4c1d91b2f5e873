// Which parts of a value are mapped into a result, and which are copied. Pure arithmetic, no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ucxstore {

// Bytes [begin, begin + length) of what is wanted of a value.
struct Part {
    std::uint64_t begin;
    std::uint64_t length;
};

struct MapPlan {
    // Whole pieces. The last one may reach beyond what is wanted.
    std::vector<Part> mapped;
    std::vector<Part> copied;
};

// What can be mapped, and is worth it.
struct MapRules {
    std::uint64_t piece;                          // bytes: of a page, or of a huge one
    std::uint64_t least;                          // pieces in a row
    std::function<bool(std::uint64_t)> is_there;  // whether this piece of the arena can be mapped
};

// What is wanted lies at `source` in an arena, and goes to `target` of a result: both are counted
// from where huge pages begin. `size` bytes are wanted. Behind these, `room` more may be replaced
// in the result, which belong to nobody.
MapPlan plan_mapping(std::uint64_t source, std::uint64_t target, std::uint64_t size,
                     std::uint64_t room, const MapRules& rules);

}  // namespace ucxstore

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
    // Whole pieces of the size of a huge page. The last one may reach beyond what is wanted.
    std::vector<Part> mapped;
    std::vector<Part> copied;
};

// What is wanted lies at `source` in an arena, and goes to `target` of a result: both are counted
// from where huge pages begin. `size` bytes are wanted. Behind these, `room` more may be replaced
// in the result, which belong to nobody. `is_huge` tells of a piece of the arena whether it can be
// mapped. Nothing is mapped in runs of fewer than `least` pieces.
MapPlan plan_mapping(std::uint64_t source, std::uint64_t target, std::uint64_t size,
                     std::uint64_t room, std::uint64_t least,
                     const std::function<bool(std::uint64_t)>& is_huge);

}  // namespace ucxstore

// Arrays in the caller's memory, and parts of them and of values as layouts: pure arithmetic, no
// I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/item_memory.hpp"
#include "protocol/layout.hpp"

namespace ucxstore::client {

struct Array {
    std::byte* base = nullptr;
    std::vector<protocol::Dim> dims;
    std::uint64_t itemsize = 0;

    // Throws Error(argument) where `shape` and `strides`, which are in bytes, make no array.
    static Array strided(std::byte* base, std::span<const std::int64_t> shape,
                         std::span<const std::int64_t> strides, std::uint64_t itemsize);
    // A raw chunk as it is stored: C order, without gaps.
    static Array stored_chunk(std::span<const std::int64_t> shape, std::uint64_t itemsize);

    // All of it.
    protocol::Layout layout() const { return protocol::Layout::strided(0, itemsize, dims); }
    std::uint64_t nbytes() const { return layout().size(); }
    // A box: `count` elements on each axis from `start`. Throws Error(argument) where it reaches
    // outside.
    protocol::Layout box(std::span<const std::int64_t> start,
                         std::span<const std::int64_t> count) const;
};

// A part of a value or of memory: where it begins, bytes a run, counts and strides of runs, and
// offsets from there to repeat all of it at. Refers to lists of the caller's.
struct StridedPart {
    std::int64_t first = 0;
    std::uint64_t run = 0;
    std::span<const std::uint64_t> counts;
    std::span<const std::int64_t> strides;
    std::optional<std::span<const std::int64_t>> offsets;
};
// Both throw Error(argument): of a part that is larger than any memory, and of one of a value that
// a server refuses.
protocol::Layout part_of_memory(const StridedPart& part);
protocol::Layout part_of_value(const StridedPart& part);

// Copies values to their places in memory that is larger than the caches. Throws Error(argument)
// where the sizes differ.
void place(std::span<const std::byte> values, const Memory& target);

}  // namespace ucxstore::client

// The file with a reader's tables of pins: its own, and one for each of its forked children, which
// have what it holds at the moment of the fork, and let go of it in their own time.
//
// A child has no connection of its own yet when it is born, and its parent may have none any more.
// So it asks nobody: the parent takes a free table before it forks, by a lock on the file's byte of
// that number. The child has the lock from then on, and the kernel ends it with the child, however
// that ends (an open file description lock: fcntl(2)). The server looks who has a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/handle.hpp"
#include "shared/index.hpp"

namespace ucxstore::shared {

constexpr std::uint64_t kPinWords = 64;
// Of one table.
constexpr std::uint64_t kPins = 64 * kPinWords;

// What `ended` says: the server lets the reader find nothing more, and uses what that has pinned
// for something else.
constexpr std::uint64_t kFindsNothing = 1;
constexpr std::uint64_t kPinsNothing = 2;

// What the file begins with: of the reader itself.
struct FamilyHeader {
    std::atomic<std::uint64_t> ended;  // these bits
    std::atomic<std::uint64_t> gets;   // that the reader has answered itself, and their bytes
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint64_t> children;     // the greatest number that a child's table ever had
    std::atomic<std::uint64_t> held;         // the server: bytes that all of them had pinned
    std::atomic<std::uint64_t> counts_uses;  // 1 where the server asks for uses
};

// A table. That of the reader itself has number 0.
struct PinTableMemory {
    std::atomic<Place> pins[kPins];
};

// Tables begin on pages, however large these are.
constexpr std::uint64_t kFamilyStride = 64ull << 10;
// Tables of one file. Those that nobody uses take no memory.
constexpr std::uint64_t kFamilyTables = 128;

// Behind the tables, counters of what the reader has used. Blocks may share one: then the server
// takes some for used that are not, or the other way round.
constexpr std::size_t kUses = 64 * 1024;
constexpr unsigned kMostUses = 3;
constexpr std::size_t use_of(Place place) { return (place * 0x9E3779B97F4A7C15ull) >> 48; }
struct Uses {
    std::atomic<std::uint8_t> counts[kUses];  // by use_of(): reads since the server has looked last
};
constexpr std::uint64_t kUsesOffset = kFamilyStride * (1 + kFamilyTables);
constexpr std::uint64_t kFamilyBytes = kUsesOffset + sizeof(Uses);

constexpr std::uint64_t table_offset(std::uint64_t number) { return kFamilyStride * (1 + number); }

static_assert(sizeof(FamilyHeader) <= kFamilyStride && sizeof(PinTableMemory) <= kFamilyStride);

// The file opened anew: locks belong to what is opened at once. None where that cannot be.
base::Fd open_anew(const base::Fd& file);

// Locks the first free table whose number is above `above`, for as long as `opened` or a copy of it
// is open. nullopt where none is free.
//
// Above: so the server, which looks at the tables in ascending order, finds what one process passes
// on to another with the one or the other.
std::optional<std::uint64_t> lock_table(const base::Fd& opened, std::uint64_t above);
// Whether anybody else has this table.
bool is_locked(const base::Fd& opened, std::uint64_t number);

}  // namespace ucxstore::shared

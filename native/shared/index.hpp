// The index that a server shows to the processes of its host: which key's value lies where. It is
// in shared memory. The server alone writes to it; readers take no lock and send no message.
//
// It is a hash table with linear probing. An entry is guarded by a sequence number, odd while the
// entry changes (a seqlock: Boehm, "Can seqlocks get along with programming language memory
// models?", 2012). Before a reader relies on a value it pins it (pins.hpp), and looks at the
// entry's number once more: hazard pointers (Michael, 2004). The key's bytes lie behind the value,
// and are compared, so that two keys of one hash are told apart.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "base/handle.hpp"

namespace ucxstore::shared {

// Where a block lies, in one number that is never 0: arena and offset. What pins hold.
using Place = std::uint64_t;

constexpr std::uint64_t kPlaceUnit = 64;  // blocks begin on multiples of it
constexpr int kArenaShift = 32;  // for arenas of up to 256 GiB, each with a number of its own

constexpr std::uint64_t kMaxArenaBytes = kPlaceUnit << kArenaShift;

constexpr Place place_of(std::uint32_t arena, std::uint64_t offset) {
    return static_cast<Place>(arena) << kArenaShift | offset / kPlaceUnit;
}
constexpr std::uint32_t arena_of(Place place) {
    return static_cast<std::uint32_t>(place >> kArenaShift);
}
constexpr std::uint64_t offset_of(Place place) {
    return (place & ((std::uint64_t{1} << kArenaShift) - 1)) * kPlaceUnit;
}

// A value's offset in its block is 0; its key follows it, at the next multiple of 8.
constexpr std::uint64_t key_offset(std::uint64_t size) { return (size + 7) / 8 * 8; }
constexpr std::uint64_t block_bytes(std::uint64_t size, std::size_t key_bytes) {
    return key_offset(size) + key_bytes;
}

// What is known of a value that lies in an arena.
struct IndexEntry {
    Place place = 0;
    std::uint64_t size = 0;
    std::uint64_t version = 0;
    std::uint64_t until = kForEver;  // nanoseconds of CLOCK_MONOTONIC: so long it is believed
    std::uint32_t key_bytes = 0;

    static constexpr std::uint64_t kForEver = ~std::uint64_t{0};
    // Only by a reader whom the server has just told to look here.
    static constexpr std::uint64_t kNotUnasked = 0;
};

// What lies in the shared memory. Both sides check the header's words before they use the rest.
struct Cell {
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::uint64_t> hash;  // kEmpty, kRemoved, or that of a key
    std::atomic<std::uint64_t> place;
    std::atomic<std::uint64_t> size;
    std::atomic<std::uint64_t> version;
    std::atomic<std::uint64_t> until;
    std::atomic<std::uint64_t> key_bytes;
    std::uint64_t reserved;
};
static_assert(sizeof(Cell) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

struct IndexHeader {
    std::uint64_t magic;
    std::uint64_t seed[2];
    std::uint64_t cells;                    // a power of two
    std::atomic<std::uint64_t> superseded;  // 1 once there is a newer index
    // Nanoseconds of CLOCK_BOOTTIME: so long its entries are believed.
    std::atomic<std::uint64_t> believed_until;
    std::uint64_t reserved[2];
};
static_assert(sizeof(IndexHeader) == 64);

constexpr std::uint64_t kIndexMagic = 0x31'6c'61'63'6f'6c'78'75;  // "uxlocal1"
constexpr std::uint64_t kEmpty = 0;
constexpr std::uint64_t kRemoved = 1;
constexpr std::uint64_t kFirstHash = 2;

// SipHash-1-3 (Aumasson and Bernstein, 2012), so that nobody can choose keys that collide.
std::uint64_t hash_key(const std::uint64_t seed[2], std::string_view key);

// Gives the memory of a block; nullptr where its arena is not mapped, or does not have so many
// bytes there.
using BytesAt = std::function<const std::byte*(Place, std::uint64_t bytes)>;

// No value is larger; so nothing overflows where what a reader finds is nonsense.
constexpr std::uint64_t kMaxValueBytes = 1ull << 46;

// The server's side. Not thread-safe.
class IndexWriter {
  public:
    // Throws Error(memory).
    explicit IndexWriter(BytesAt bytes_at, std::uint64_t cells = 1024);
    IndexWriter(const IndexWriter&) = delete;
    IndexWriter& operator=(const IndexWriter&) = delete;
    ~IndexWriter();

    // From now on readers find this entry under the key, and no older one. The key's bytes are in
    // the block already. Throws Error(memory) where the index must grow and cannot; then readers
    // find none.
    void put(std::string_view key, const IndexEntry& entry);
    // From now on readers do not find it.
    void remove(std::string_view key);
    // From then on readers find none of them, even if this process stands still; for ever at first.
    void believe_until(std::uint64_t until);

    std::uint64_t size() const { return used_; }
    // For readers. Another one after the index has grown.
    int descriptor() const { return readable_.get(); }
    std::uint64_t bytes() const;
    // Another number for each descriptor(), and never 0.
    std::uint64_t generation() const { return generation_; }

  private:
    Cell* cells() const;
    Cell* find(std::string_view key, std::uint64_t hash) const;
    Cell* free_cell(std::uint64_t hash) const;
    static void write(Cell& cell, std::uint64_t hash, const IndexEntry& entry);
    void make(std::uint64_t cells);
    void grow();
    void unmap();

    const BytesAt bytes_at_;
    base::Fd readable_;
    IndexHeader* header_ = nullptr;
    std::uint64_t generation_ = 0;
    std::uint64_t used_ = 0;
    std::uint64_t removed_ = 0;
    std::uint64_t believed_until_ = IndexEntry::kForEver;
};

// A reader's side, in any process. Called from any thread.
class IndexReader {
  public:
    // Maps what a server's descriptor() is. Throws Error(protocol) where it is no index of ours.
    explicit IndexReader(const base::Fd& descriptor);
    IndexReader(const IndexReader&) = delete;
    IndexReader& operator=(const IndexReader&) = delete;
    ~IndexReader();

    // Whether the server has a newer one, which must be asked for.
    bool superseded() const;

    // The entry of the key, with its place in `pin`: until that is cleared, the server does not use
    // the block for anything else. nullopt, and nothing pinned, where there is none that is still
    // believed, or where `bytes_at` does not know the arena of what may be it: then `unknown` is
    // that arena.
    // `asked`: the server has just said that the value is here.
    std::optional<IndexEntry> find(std::string_view key, std::atomic<Place>& pin,
                                   const BytesAt& bytes_at, std::uint32_t& unknown,
                                   bool asked = false) const;

  private:
    const IndexHeader* header_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint64_t cells_ = 0;  // as its header said once
};

}  // namespace ucxstore::shared

#include "shared/index.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/boot_clock.hpp"
#include "base/status.hpp"
#include "base/steady.hpp"
#include "base/steps.hpp"

namespace ucxstore::shared {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// What changes while it is read is looked at again so often; then the server is asked.
constexpr int kFindTries = 64;

std::uint64_t load_word(const char* bytes, std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, count);
    return word;
}

struct SipState {
    std::uint64_t v0, v1, v2, v3;

    void round() {
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    void take(std::uint64_t word) {
        v3 ^= word;
        round();
        v0 ^= word;
    }
};

// Whether an entry is not believed any more.
bool is_over(std::uint64_t until) {
    return until != IndexEntry::kForEver &&
           until <=
               static_cast<std::uint64_t>(
                   std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch())
                       .count());
}

bool is_key_at(const std::byte* block, std::uint64_t size, std::string_view key) {
    return std::memcmp(block + key_offset(size), key.data(), key.size()) == 0;
}

}  // namespace

std::uint64_t hash_key(const std::uint64_t seed[2], std::string_view key) {
    SipState state{seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d,
                   seed[0] ^ 0x6c7967656e657261, seed[1] ^ 0x7465646279746573};
    std::size_t at = 0;
    for (; at + 8 <= key.size(); at += 8) {
        state.take(load_word(key.data() + at, 8));
    }
    state.take(load_word(key.data() + at, key.size() - at) | static_cast<std::uint64_t>(key.size())
                                                                 << 56);
    state.v2 ^= 0xff;
    for (int i = 0; i < 3; ++i) {
        state.round();
    }
    const std::uint64_t hash = state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
    return hash < kFirstHash ? hash + kFirstHash : hash;
}

// ---- the server's side ----

IndexWriter::IndexWriter(BytesAt bytes_at, std::uint64_t cells) : bytes_at_(std::move(bytes_at)) {
    make(std::bit_ceil(cells));
}

IndexWriter::~IndexWriter() { unmap(); }

std::uint64_t IndexWriter::bytes() const {
    return sizeof(IndexHeader) + header_->cells * sizeof(Cell);
}

Cell* IndexWriter::cells() const { return reinterpret_cast<Cell*>(header_ + 1); }

void IndexWriter::unmap() {
    if (header_ != nullptr) {
        munmap(header_, bytes());
        header_ = nullptr;
    }
}

void IndexWriter::make(std::uint64_t cells) {
    const std::uint64_t bytes = sizeof(IndexHeader) + cells * sizeof(Cell);
    const auto fail = [&] {
        base::throw_errno("an index of " + std::to_string(bytes) + " bytes",
                          base::ErrorKind::memory);
    };
    const base::Fd file(memfd_create("ucxstore-index", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
        fail();
    }
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) {
        fail();
    }
    madvise(memory, bytes, MADV_DONTFORK);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | 0x10 /* F_SEAL_FUTURE_WRITE */ | F_SEAL_SEAL;
    base::Fd readable(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    auto* const header = new (memory) IndexHeader{};  // the file's zeros are empty cells
    header->magic = kIndexMagic;
    header->cells = cells;
    header->believed_until.store(believed_until_, memory_order_relaxed);
    if (fcntl(file.get(), F_ADD_SEALS, seals) != 0 || fchmod(file.get(), S_IRUSR) != 0 ||
        !readable || getrandom(header->seed, sizeof(header->seed), 0) != sizeof(header->seed)) {
        munmap(memory, bytes);
        fail();
    }
    unmap();
    header_ = header;
    readable_ = std::move(readable);
    ++generation_;
    used_ = removed_ = 0;
}

void IndexWriter::write(Cell& cell, std::uint64_t hash, const IndexEntry& entry) {
    const std::uint64_t sequence = cell.sequence.load(memory_order_relaxed);
    cell.sequence.store(sequence + 1, memory_order_relaxed);
    base::step();
    cell.hash.store(hash, memory_order_release);
    cell.place.store(entry.place, memory_order_release);
    base::step();
    cell.size.store(entry.size, memory_order_release);
    cell.version.store(entry.version, memory_order_release);
    cell.until.store(entry.until, memory_order_release);
    cell.key_bytes.store(entry.key_bytes, memory_order_release);
    base::step();
    // Before the server looks at pins: a reader has pinned the old block by now, or sees this.
    cell.sequence.store(sequence + 2, memory_order_seq_cst);
}

Cell* IndexWriter::find(std::string_view key, std::uint64_t hash) const {
    const std::uint64_t mask = header_->cells - 1;
    for (std::uint64_t at = hash & mask;; at = (at + 1) & mask) {
        Cell& cell = cells()[at];
        const std::uint64_t found = cell.hash.load(memory_order_relaxed);
        if (found == kEmpty) {
            return nullptr;
        }
        if (found == hash && cell.key_bytes.load(memory_order_relaxed) == key.size() &&
            is_key_at(bytes_at_(cell.place.load(memory_order_relaxed), 0),
                      cell.size.load(memory_order_relaxed), key)) {
            return &cell;
        }
    }
}

void IndexWriter::put(std::string_view key, const IndexEntry& entry) {
    const std::uint64_t hash = hash_key(header_->seed, key);
    if (Cell* const cell = find(key, hash)) {
        write(*cell, hash, entry);
        return;
    }
    Cell* const cell = free_cell(hash);
    const bool is_empty = cell->hash.load(memory_order_relaxed) == kEmpty;
    // Half of the cells stay empty: a reader looks at few of them for a key that is not there.
    if (is_empty && 2 * (used_ + removed_ + 1) > header_->cells) {
        grow();
        put(key, entry);
        return;
    }
    removed_ -= is_empty ? 0 : 1;
    ++used_;
    write(*cell, hash, entry);
}

// The first on the hash's way that has no key.
Cell* IndexWriter::free_cell(std::uint64_t hash) const {
    const std::uint64_t mask = header_->cells - 1;
    std::uint64_t at = hash & mask;
    while (cells()[at].hash.load(memory_order_relaxed) >= kFirstHash) {
        at = (at + 1) & mask;
    }
    return &cells()[at];
}

void IndexWriter::remove(std::string_view key) {
    if (Cell* const cell = find(key, hash_key(header_->seed, key))) {
        write(*cell, kRemoved, {});
        --used_;
        ++removed_;
    }
}

void IndexWriter::believe_until(std::uint64_t until) {
    believed_until_ = until;
    header_->believed_until.store(until, memory_order_release);
}

void IndexWriter::grow() {
    IndexHeader* const old = header_;
    Cell* const cells_before = cells();
    const std::uint64_t count = old->cells;
    const std::uint64_t bytes_before = bytes();
    header_ = nullptr;  // make() would unmap it
    try {
        make(used_ > count / 4 ? 2 * count : count);
    } catch (...) {
        header_ = old;
        throw;
    }
    for (std::uint64_t at = 0; at < count; ++at) {
        Cell& cell = cells_before[at];
        if (cell.hash.load(memory_order_relaxed) < kFirstHash) {
            continue;
        }
        const IndexEntry entry{
            cell.place.load(memory_order_relaxed), cell.size.load(memory_order_relaxed),
            cell.version.load(memory_order_relaxed), cell.until.load(memory_order_relaxed),
            static_cast<std::uint32_t>(cell.key_bytes.load(memory_order_relaxed))};
        const auto* const bytes =
            reinterpret_cast<const char*>(bytes_at_(entry.place, 0)) + key_offset(entry.size);
        put({bytes, entry.key_bytes}, entry);
        // Whoever still reads here finds nothing that may have gone.
        write(cell, kRemoved, {});
    }
    old->superseded.store(1, memory_order_release);
    munmap(old, bytes_before);
}

// ---- a reader's side ----

IndexReader::IndexReader(const base::Fd& descriptor) {
    struct stat status{};
    if (fstat(descriptor.get(), &status) != 0) {
        base::throw_errno("the server's index", base::ErrorKind::protocol);
    }
    bytes_ = static_cast<std::uint64_t>(status.st_size);
    void* const memory = bytes_ < sizeof(IndexHeader) || !base::is_steady(descriptor)
                             ? MAP_FAILED
                             : mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor.get(), 0);
    if (memory == MAP_FAILED) {
        throw base::Error(base::ErrorKind::protocol, "the server's index cannot be mapped");
    }
    header_ = static_cast<const IndexHeader*>(memory);
    // Read once, by volatile: whoever writes to the file changes nothing of what was checked.
    const std::uint64_t cells = *static_cast<const volatile std::uint64_t*>(&header_->cells);
    if (header_->magic != kIndexMagic || !std::has_single_bit(cells) ||
        cells > (bytes_ - sizeof(IndexHeader)) / sizeof(Cell)) {
        munmap(memory, bytes_);
        throw base::Error(base::ErrorKind::protocol, "the server's index is of another kind");
    }
    cells_ = cells;
}

IndexReader::~IndexReader() { munmap(const_cast<IndexHeader*>(header_), bytes_); }

bool IndexReader::superseded() const { return header_->superseded.load(memory_order_acquire) != 0; }

std::optional<IndexEntry> IndexReader::find(std::string_view key, std::atomic<Place>& pin,
                                            const BytesAt& bytes_at, std::uint32_t& unknown,
                                            bool asked) const {
    unknown = 0;
    const auto* const cells = reinterpret_cast<const Cell*>(header_ + 1);
    const std::uint64_t hash = hash_key(header_->seed, key);
    const std::uint64_t mask = cells_ - 1;
    int tries = 0;
    for (std::uint64_t at = hash & mask, seen = 0; seen <= mask && tries < kFindTries;) {
        const Cell& cell = cells[at];
        const std::uint64_t sequence = cell.sequence.load(memory_order_acquire);
        const std::uint64_t found = cell.hash.load(memory_order_acquire);
        const IndexEntry entry{
            cell.place.load(memory_order_acquire), cell.size.load(memory_order_acquire),
            cell.version.load(memory_order_acquire), cell.until.load(memory_order_acquire),
            static_cast<std::uint32_t>(cell.key_bytes.load(memory_order_acquire))};
        if (sequence % 2 != 0 || cell.sequence.load(memory_order_relaxed) != sequence) {
            ++tries;
            continue;
        }
        if (found == kEmpty) {
            return std::nullopt;
        }
        if (found == hash && entry.key_bytes == key.size()) {
            base::step();
            pin.store(entry.place, memory_order_seq_cst);
            base::step();
            // Before the second look at the cell: so the entry was there while it was believed.
            const std::uint64_t until = header_->believed_until.load(memory_order_acquire);
            const bool believed = until == IndexEntry::kForEver || base::boot_nanoseconds() < until;
            if (cell.sequence.load(memory_order_seq_cst) != sequence) {
                pin.store(0, memory_order_release);
                ++tries;
                continue;
            }
            const std::byte* const block =
                entry.size > kMaxValueBytes
                    ? nullptr
                    : bytes_at(entry.place, block_bytes(entry.size, key.size()));
            if (block == nullptr) {
                pin.store(0, memory_order_release);
                unknown = arena_of(entry.place);
                return std::nullopt;
            }
            if (is_key_at(block, entry.size, key)) {
                if (believed &&
                    (entry.until == IndexEntry::kNotUnasked ? asked : !is_over(entry.until))) {
                    return entry;
                }
                pin.store(0, memory_order_release);
                return std::nullopt;
            }
            pin.store(0, memory_order_release);
        }
        at = (at + 1) & mask;
        ++seen;
    }
    return std::nullopt;
}

}  // namespace ucxstore::shared

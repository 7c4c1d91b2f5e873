// Blocks that no key has any more: freed once no reader has them pinned.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "shared/arenas.hpp"
#include "shared/board.hpp"
#include "shared/pins.hpp"

namespace ucxstore::shared {

// Called from any thread.
class Limbo {
  public:
    // Blocks, and bytes of them, that may wait until readers are asked. Few bytes where there are
    // few readers: to look at the pins of each costs as much as to write some of a value.
    static constexpr std::size_t kBlocks = 256;
    static constexpr std::uint64_t kBytes = 32ull << 20;
    static constexpr std::uint64_t kBytesPerReader = 256ull << 10;

    // `board`: where readers are told what all of them hold.
    explicit Limbo(Arenas& arenas, Board* board = nullptr) : arenas_(arenas), board_(board) {}
    Limbo(const Limbo&) = delete;
    Limbo& operator=(const Limbo&) = delete;

    // What is pinned in this table counts from now on, until its reader has gone.
    void add(std::shared_ptr<PinTable> table);

    // From now on the readers find nothing; what they have pinned stays.
    void end();

    // The index has not had the block since before this call. It is freed now, or by a later
    // sweep(). `keeps` goes with it.
    void retire(const Block& block, std::shared_ptr<void> keeps = nullptr);
    // Frees what nobody has pinned, and tells how much is pinned; to be called when a reader has
    // gone, too.
    void sweep();

    // Drops the tables of readers that have gone, and no more than that.
    void forget_gone();

    // Bytes that wait.
    std::uint64_t waiting() const;
    // What readers have read, also those that have gone.
    PinTable::Seen seen() const;
    // How often readers say that they have read a block since the last call.
    unsigned take_uses(Place place) const;

  private:
    struct Retired {
        Block block;
        std::shared_ptr<void> keeps;
    };

    void forget_gone_locked();
    void sweep_locked();
    std::uint64_t bytes_of(const std::unordered_set<Place>& places) const;

    Arenas& arenas_;
    Board* const board_;
    mutable Mutex mutex_;
    std::vector<std::shared_ptr<PinTable>> tables_;
    PinTable::Seen seen_before_;  // by those that have gone
    std::vector<Retired> retired_;
    std::uint64_t bytes_ = 0;
    // Where the next sweep is due: what is pinned for long must not have each block ask anew.
    std::size_t next_blocks_ = 0;
    std::uint64_t next_bytes_ = 0;
};

}  // namespace ucxstore::shared

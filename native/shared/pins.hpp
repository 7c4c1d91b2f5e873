// What readers are reading: each process has a table in shared memory that it writes to, and that
// the server reads before it uses a block for something else. Whatever a process writes there, it
// can only keep blocks from being freed, or lose its own hold on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_set>

#include "base/handle.hpp"
#include "shared/index.hpp"

namespace ucxstore::shared {

constexpr std::uint64_t kPinWords = 64;
// Of one table.
constexpr std::uint64_t kPins = 64 * kPinWords;

// What lies in the shared memory.
struct PinMemory {
    std::atomic<std::uint64_t> ended;  // 1 once the server lets the reader find nothing more
    std::atomic<std::uint64_t> gets;   // that the reader has answered itself, and their bytes
    std::atomic<std::uint64_t> bytes;
    std::uint64_t reserved[5];
    std::atomic<Place> pins[kPins];
};

// The server's side of a table. What a reader has pinned stays until it lets go of it, or has gone,
// whatever becomes of its session: so the table outlives that.
class PinTable {
  public:
    // Throws Error(memory), Error(resource).
    PinTable();
    PinTable(const PinTable&) = delete;
    PinTable& operator=(const PinTable&) = delete;
    ~PinTable();

    // For the process whose table it is, and not kept here: the table, which it maps for writing,
    // and one end of a pipe, which it keeps open for as long as it pins anything.
    struct Descriptors {
        Fd table;
        Fd lifeline;
    };
    Descriptors take_descriptors();

    // From now on the reader finds nothing. Any thread.
    void end() { memory_->ended.store(1, std::memory_order_seq_cst); }
    // Whether nobody has the other end of the pipe any more.
    bool reader_gone() const;
    // Adds what is pinned right now.
    void collect(std::unordered_set<Place>& pinned) const;

    // What the reader says that it has read: values, and their bytes.
    struct Seen {
        std::uint64_t gets = 0;
        std::uint64_t bytes = 0;
    };
    Seen seen() const;

  private:
    Descriptors descriptors_;
    Fd lifeline_;
    PinMemory* memory_ = nullptr;
};

// A reader's side: pins that are free to be used. Called from any thread.
class Pins {
  public:
    // Maps the table, and keeps the lifeline. Throws Error(protocol) where it is no table of ours.
    explicit Pins(PinTable::Descriptors descriptors);
    Pins(const Pins&) = delete;
    Pins& operator=(const Pins&) = delete;
    ~Pins();

    // Whether the server has ended the session: its values may be others by now. What is pinned
    // stays as it is.
    bool ended() const { return memory_->ended.load(std::memory_order_acquire) != 0; }
    // For the server's statistics.
    void count(std::uint64_t bytes);

    // One that nobody uses, which holds nothing yet; nullptr where all are used.
    std::atomic<Place>* take();
    // Clears it first.
    void give(std::atomic<Place>* pin);

  private:
    Fd lifeline_;
    PinMemory* memory_ = nullptr;
    std::atomic<std::uint64_t> used_[kPinWords] = {};
};

}  // namespace ucxstore::shared

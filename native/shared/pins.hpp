// What readers are reading: each process has a table in shared memory that it writes to, and that
// the server reads before it uses a block for something else. Whatever a process writes there, it
// can only keep blocks from being freed, or lose its own hold on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "base/handle.hpp"
#include "shared/index.hpp"

namespace ucxstore::shared {

constexpr std::uint64_t kPinWords = 64;
// Of one table. A process that needs more asks for another one.
constexpr std::uint64_t kPins = 64 * kPinWords;
constexpr std::uint64_t kPinTableBytes = kPins * sizeof(std::atomic<Place>);

// The server's side of a table.
class PinTable {
  public:
    // Throws Error(memory).
    PinTable();
    PinTable(const PinTable&) = delete;
    PinTable& operator=(const PinTable&) = delete;
    ~PinTable();

    // For the process whose table it is, which maps it for writing.
    int descriptor() const { return file_.get(); }
    // Adds what is pinned right now.
    void collect(std::unordered_set<Place>& pinned) const;

  private:
    Fd file_;
    const std::atomic<Place>* pins_ = nullptr;
};

// A reader's side: pins that are free to be used. Called from any thread.
class Pins {
  public:
    // Maps what a server's descriptor() is. Throws Error(protocol) where it is no table of ours.
    explicit Pins(const Fd& descriptor);
    Pins(const Pins&) = delete;
    Pins& operator=(const Pins&) = delete;
    ~Pins();

    // One that nobody uses, which holds nothing yet; nullptr where all are used.
    std::atomic<Place>* take();
    // Clears it first.
    void give(std::atomic<Place>* pin);

  private:
    std::atomic<Place>* pins_ = nullptr;
    std::atomic<std::uint64_t> used_[kPinWords] = {};
};

}  // namespace ucxstore::shared

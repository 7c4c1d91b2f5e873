// A limit on the bytes of values that are on their way. Room is taken until the last
// copy of its Room goes. Others wait meanwhile, first come first served.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ucxstore::storage {

// No owner can keep the others out: whatever one has taken counts for them as a quarter of the
// limit at the most. So where several have room, they can have up to three quarters more than the
// limit together.
class WriteBudget {
  public:
    using Room = std::shared_ptr<void>;
    // Tells takers apart.
    using Owner = std::string;

    explicit WriteBudget(std::uint64_t limit);

    // The room, if it is there, or nobody else has any. Else nullptr, and `then` gets it later, on
    // any thread, and not under a lock.
    Room take(std::uint64_t bytes, std::function<void(Room)> then, const Owner& owner = {});
    // The room, whether it is there or not: for bytes that are in memory already.
    Room take_now(std::uint64_t bytes, const Owner& owner = {});

    std::uint64_t taken() const;
    // Whether anybody waits for room.
    bool is_short() const;
    // Who waits, waits in a queue that moves: bytes have come for which there was room.
    void note_moved();
    // How often that was, or room was given back.
    std::uint64_t moved() const;

  private:
    class State;
    const std::shared_ptr<State> state_;
};

}  // namespace ucxstore::storage

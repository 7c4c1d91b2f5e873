// Bytes of values that are on their way to a storage that takes its time. Whoever has room for one
// has it until the last copy of its Room has gone; others wait, first come first served.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ucxstore {

class WriteBudget {
  public:
    using Room = std::shared_ptr<void>;

    explicit WriteBudget(std::uint64_t limit);

    // At once where there is room, which is always so where nothing else has any; else nullptr, and
    // `then` has it later, on any thread, and not under a lock.
    Room take(std::uint64_t bytes, std::function<void(Room)> then);
    // At once, for what is in memory already.
    Room take_now(std::uint64_t bytes);

    std::uint64_t taken() const;

  private:
    class State;
    const std::shared_ptr<State> state_;
};

}  // namespace ucxstore

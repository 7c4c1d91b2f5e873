// A limit on the bytes of values that are on their way to a source. Room is taken until the last
// copy of its Room goes. Others wait meanwhile, first come first served.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ucxstore {

class WriteBudget {
  public:
    using Room = std::shared_ptr<void>;

    explicit WriteBudget(std::uint64_t limit);

    // The room, if it is there, or nobody else has any. Else nullptr, and `then` gets it later, on
    // any thread, and not under a lock.
    Room take(std::uint64_t bytes, std::function<void(Room)> then);
    // The room, whether it is there or not: for bytes that are in memory already.
    Room take_now(std::uint64_t bytes);

    std::uint64_t taken() const;

  private:
    class State;
    const std::shared_ptr<State> state_;
};

}  // namespace ucxstore

// Later: a callback for a result that comes later, or for a failure.
#pragma once

#include <functional>
#include <string>

namespace ucxstore::cache {

// A value, or a failure.
template <typename T>
struct Outcome {
    T value{};
    std::string failure;   // "" for none
    bool unknown = false;  // of a change that failed: whether it may have been made
};
template <typename T>
using Later = std::function<void(Outcome<T>)>;  // on any thread, and not under a lock

}  // namespace ucxstore::cache

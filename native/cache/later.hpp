// What comes later: of something that takes its time.
#pragma once

#include <functional>
#include <string>

namespace ucxstore {

// A failure, or a value.
template <typename T>
struct Outcome {
    T value{};
    std::string failure;  // "" for none
};
template <typename T>
using Later = std::function<void(Outcome<T>)>;  // on any thread, and not under a lock

}  // namespace ucxstore

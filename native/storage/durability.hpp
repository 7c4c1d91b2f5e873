// Durability: what of a value in a directory is on the medium, and when.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"

namespace ucxstore::storage {

enum class Durability {
    none,    // the kernel writes when it likes: after a crash of the host, any bytes may be missing
    atomic,  // a key gets a value once all of that is on the medium
    fsync,   // and a change is acknowledged once it is there, too
};

// Throws Error(argument).
inline Durability parse_durability(std::string_view text) {
    if (text == "none") {
        return Durability::none;
    }
    if (text == "atomic") {
        return Durability::atomic;
    }
    if (text == "fsync") {
        return Durability::fsync;
    }
    throw base::Error(base::ErrorKind::argument, "no durability: '" + std::string(text) + "'");
}

}  // namespace ucxstore::storage

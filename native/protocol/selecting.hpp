// What a get is to be sent of a value: the same rules at the server, and at a client that sees the
// value itself. Pure arithmetic, no I/O.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "protocol/layout.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::protocol {

// The reply in place of bytes.
struct Refusal {
    Status status;
    std::uint64_t value_size = 0;
    std::uint64_t version = kAnyVersion;
};

struct Selected {
    Layout layout;            // of the value; or
    std::vector<Span> spans;  // several byte ranges that are not empty
    bool several = false;     // whether it is `spans`
    std::uint64_t size = 0;   // of all that is sent
};

// `value_size` and `version` are those of the value that the key has.
std::variant<Selected, Refusal> select(const GetItem& wanted, std::uint64_t value_size,
                                       std::uint64_t version);

}  // namespace ucxstore::protocol

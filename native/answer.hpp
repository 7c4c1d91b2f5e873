// What a server answers to requests other than gets: keys and sizes, in one message.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "backing/backing.hpp"
#include "counters.hpp"
#include "wire.hpp"

namespace ucxstore {

struct Answer {
    wire::Status status = wire::Status::ok;
    std::string payload;  // or what went wrong
};

// Carries the request out. Throws Error(protocol) where the client breaks it; whatever else fails
// is the answer.
Answer answer_of(Backing& backing, const Counters& counters, bool read_only,
                 const wire::RequestHeader& header, std::span<const std::byte> body);

}  // namespace ucxstore

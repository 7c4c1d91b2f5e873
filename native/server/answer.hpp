// What a server answers to requests other than gets: keys and sizes, in one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <variant>

#include "cache/calls.hpp"
#include "protocol/wire.hpp"
#include "storage/spaces.hpp"

namespace ucxstore {

struct Answer {
    wire::Status status = wire::Status::ok;
    std::string payload;  // or what went wrong
};

// How a failure of a storage is told.
wire::Status status_of(const std::exception& failure);

// What a request asks of the storage; or the answer, where the storage is not needed for that. All
// of its keys are of one scratch space, or none is of any. Throws Error(protocol) where the client
// breaks it.
std::variant<Ask, Answer> read_ask(bool read_only, const wire::RequestHeader& header,
                                   std::span<const std::byte> body);

// What the owner of a scratch space says of it; only a new one has the last two.
struct SpaceRequest {
    std::string name;
    std::uint64_t quota = 0;
    Spaces::Timeout timeout{};
};
// Throws Error(protocol).
SpaceRequest read_space_request(wire::Op op, std::span<const std::byte> body);

// A key, or the beginning of keys, that it is about; "" for none.
const std::string& place_of(const Ask& ask);

// Carries it out; whatever fails is the answer.
Answer answer_of(Storage& storage, const Ask& ask);

// The answer from what was told elsewhere.
Answer answer_of(const Told& told);

}  // namespace ucxstore

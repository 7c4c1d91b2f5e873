// Requests other than gets and pings: read from their message, carried out, answered in one
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <variant>

#include "cache/calls.hpp"
#include "protocol/wire.hpp"
#include "sessions/bounds.hpp"
#include "storage/spaces.hpp"

namespace ucxstore::sessions {

struct Answer {
    protocol::Status status = protocol::Status::ok;
    std::string payload;  // or the text of the failure
};

// The status of a reply for a failure of a storage.
protocol::Status status_of(const std::exception& failure);

// The call that a request makes to the storage; or the answer, where it is refused without one. All
// of its keys are in one scratch space, or none is in any. Throws Error(protocol) where the client
// breaks the protocol.
std::variant<cache::StorageCall, Answer> read_call(bool read_only, const Bounds& bounds,
                                                   const protocol::RequestHeader& header,
                                                   std::span<const std::byte> body);

// A request to begin, renew or end a scratch space. Only begin_space has a quota and a time-out.
struct SpaceRequest {
    std::string name;
    std::uint64_t quota = 0;
    storage::Spaces::Timeout timeout{};
};
// Throws Error(protocol).
SpaceRequest read_space_request(protocol::Op op, std::span<const std::byte> body);

// The first key of a call, or its prefix; "" for none.
const std::string& key_or_prefix_of(const cache::StorageCall& call);

// Whether the call removes keys.
bool changes(const cache::StorageCall& call);

// Whether a progress thread may make the call, as it does not take long.
bool concerns_few_keys(const cache::StorageCall& call);

// The answer for a result.
Answer answer_of(const cache::CallResult& result);

}  // namespace ucxstore::sessions

// Make operations, and their request messages: many items in each, up to a bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/operation.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::client {

using QueuePointer = std::shared_ptr<CompletionQueue>;

// An operation with an item for each key, and no messages yet. Throws Error(invalid_key).
std::shared_ptr<Operation> make_operation(const std::vector<std::string>& keys,
                                          Operation::Kind kind, double timeout_s,
                                          QueuePointer queue);

// Says what is wanted of each item of gets. Key, version and limits are the item's.
void want(Operation& operation, std::vector<protocol::GetItem> wanted);

// Makes the messages that request these items of gets, in ascending order. Throws Error(argument)
// where one is larger than a server takes.
std::vector<Outgoing> request_gets(const Operation& operation,
                                   std::span<const std::uint32_t> items);
// The same, of all items.
std::vector<Outgoing> request_gets(const Operation& operation);

// An operation on many keys with one reply for each message, not for each key: stat, remove. Throws
// Error(invalid_key).
std::shared_ptr<Operation> make_calls(protocol::Op op, const std::vector<std::string>& keys,
                                      double timeout_s, QueuePointer queue);

// Says which values, of these versions, have been read whole.
std::shared_ptr<Operation> make_read(
    const std::vector<std::pair<std::string, std::uint64_t>>& values, double timeout_s);

// An operation of one message; `key` is for the text of failures.
std::shared_ptr<Operation> make_call(protocol::Op op, const std::string& key, std::string body,
                                     double timeout_s, QueuePointer queue);

}  // namespace ucxstore::client

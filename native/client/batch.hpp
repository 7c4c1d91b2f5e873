// Make operations, and their request messages: many items in each, up to a bounded size.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/operation.hpp"
#include "protocol/wire.hpp"

namespace ucxstore {

using QueuePointer = std::shared_ptr<CompletionQueue>;

// An operation with an item for each key, and no messages yet. Throws Error(invalid_key).
std::shared_ptr<Operation> make_operation(const std::vector<std::string>& keys,
                                          Operation::Kind kind, double timeout_s,
                                          QueuePointer queue);

// Makes the messages of gets, one of `wanted` for each item. Key, version and limits are the
// item's.
void request_gets(Operation& operation, std::vector<wire::GetItem> wanted);

// An operation on many keys with one reply for each message, not for each key: stat, remove. Throws
// Error(invalid_key).
std::shared_ptr<Operation> make_calls(wire::Op op, const std::vector<std::string>& keys,
                                      double timeout_s, QueuePointer queue);

// An operation of one message; `key` is for the text of failures.
std::shared_ptr<Operation> make_call(wire::Op op, const std::string& key, std::string body,
                                     double timeout_s, QueuePointer queue);

}  // namespace ucxstore

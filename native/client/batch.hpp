// Operations as the request messages that carry them: many items a message, a message of bounded
// size.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/operation.hpp"
#include "protocol/wire.hpp"

namespace ucxstore {

using QueuePointer = std::shared_ptr<CompletionQueue>;

// An operation of one item a key, still without messages. Throws Error(invalid_key).
std::shared_ptr<Operation> make_operation(const std::vector<std::string>& keys,
                                          Operation::Kind kind, double timeout_s,
                                          QueuePointer queue);

// The messages that ask for `wanted`, one an item; the rest of each follows from the item.
void request_gets(Operation& operation, std::vector<wire::GetItem> wanted);

// An operation on many keys that is answered a message, not a key (stat, remove). Throws
// Error(invalid_key).
std::shared_ptr<Operation> make_calls(wire::Op op, const std::vector<std::string>& keys,
                                      double timeout_s, QueuePointer queue);

// An operation of one message; `key` is for what is said of it if it fails.
std::shared_ptr<Operation> make_call(wire::Op op, const std::string& key, std::string body,
                                     double timeout_s, QueuePointer queue);

}  // namespace ucxstore

// The Error for an item that a server has refused.
#pragma once

#include <string>
#include <string_view>

#include "client/operation.hpp"

namespace ucxstore::client {

// `text` is the reply's, or "". `header.status` is too_large only for an item with memory.
base::Error refusal(const std::string& peer, const Item& item, const protocol::ReplyHeader& header,
                    std::string_view text);

}  // namespace ucxstore::client

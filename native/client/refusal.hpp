// What a server's refusal of an item means to the caller.
#pragma once

#include <string>
#include <string_view>

#include "client/operation.hpp"

namespace ucxstore {

// `text` is what the server says of it, where it says something. Nothing is too large for an item
// without memory.
Error refusal(const std::string& peer, const Item& item, const wire::ReplyHeader& header,
              std::string_view text);

}  // namespace ucxstore

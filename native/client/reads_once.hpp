// Tell a server what was read of scratch spaces that free what has been read once.
#pragma once

#include <memory>

#include "client/link.hpp"
#include "client/operation.hpp"

namespace ucxstore::client {

// To be called before the operation is submitted. Once it has read whole values of such spaces
// without a failure, the link tells the server so, which then frees them. Nobody waits for that:
// where it does not arrive, the values stay until their space ends.
void tell_of_reads(const std::shared_ptr<Link>& link, Operation& operation);

// Whether an item of a get has every byte of its value.
bool is_whole(const protocol::GetItem& wanted, const Item& item);

}  // namespace ucxstore::client

// What a reply means for the operation that it is to. No I/O.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "client/operation.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::client {

// Notes the reply in its item. True where it is a segment of what the item is to receive; else the
// item is done, and where the server has refused it, the operation has failed. `text` is the
// refusal's. Throws Error(protocol) where the server breaks the protocol.
bool note_reply(const std::string& peer, Operation& operation, const protocol::ReplyHeader& header,
                std::string_view text);

// Notes the segment, of which `size` bytes have come or will come, and makes memory for the reply
// where the caller has given none. Throws Error(protocol), Error(memory).
void note_segment(Operation& operation, const protocol::ReplyHeader& header, std::size_t size);

// The memory that a segment goes to, once it is noted.
std::vector<ucp_dt_iov_t> pieces_of(const Item& item, const protocol::ReplyHeader& header);

}  // namespace ucxstore::client

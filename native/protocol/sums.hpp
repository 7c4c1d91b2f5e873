// Checksums of messages, for the sessions whose client wants them: of what a message says, and of
// the bytes that it carries. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ucxstore::protocol {

// The checksum of a message's data; nullopt where the session's messages have none.
using Sum = std::optional<std::uint32_t>;

// Behind the header of such a message, with the key where there is one.
struct Sums {
    std::uint32_t data;
    std::uint32_t header;  // of the header, the key, and `data`
};
static_assert(sizeof(Sums) == 8);

void append_sums(std::string& header, std::uint32_t data);

// Takes them off the end of a header: the checksum of its data. nullopt where the header is not
// what was sent, and so nothing in it may be believed.
Sum take_sums(const void* header, std::size_t& size);

}  // namespace ucxstore::protocol

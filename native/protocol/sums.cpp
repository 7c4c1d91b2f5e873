#include "protocol/sums.hpp"

#include <cstring>
#include <span>

#include "memory/crc32c.hpp"

namespace ucxstore::protocol {
namespace {

constexpr std::size_t kDataBytes = sizeof(Sums::data);

std::uint32_t sum_of(const void* bytes, std::size_t size) {
    return memory::crc32c(std::span(static_cast<const std::byte*>(bytes), size));
}

}  // namespace

void append_sums(std::string& header, std::uint32_t data) {
    header.append(reinterpret_cast<const char*>(&data), kDataBytes);
    const std::uint32_t sum = sum_of(header.data(), header.size());
    header.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
}

Sum take_sums(const void* header, std::size_t& size) {
    if (size < sizeof(Sums)) {
        return std::nullopt;
    }
    Sums sums;
    std::memcpy(&sums, static_cast<const std::byte*>(header) + size - sizeof(sums), sizeof(sums));
    size -= sizeof(sums);
    return sum_of(header, size + kDataBytes) == sums.header ? Sum(sums.data) : std::nullopt;
}

}  // namespace ucxstore::protocol

#include "files/content_hash.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace ucxstore::files {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ull;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Full;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ull;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ull;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ull;

constexpr std::size_t kLanes = 4;
constexpr std::size_t kStripe = kLanes * sizeof(std::uint64_t);

template <typename Number>
Number load(const std::byte* at) {
    Number number;
    std::memcpy(&number, at, sizeof(number));
    return number;
}

std::uint64_t mix(std::uint64_t lane, std::uint64_t word) {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

// All whole stripes; moves `at` behind them.
std::uint64_t hash_stripes(const std::byte*& at, std::size_t stripes) {
    std::array<std::uint64_t, kLanes> lanes = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    for (std::size_t stripe = 0; stripe < stripes; ++stripe, at += kStripe) {
        for (std::size_t i = 0; i < kLanes; ++i) {
            lanes[i] = mix(lanes[i], load<std::uint64_t>(at + i * sizeof(std::uint64_t)));
        }
    }
    std::uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                         std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) {
        hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
    }
    return hash;
}

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> bytes) {
    const std::byte* at = bytes.data();
    const std::size_t stripes = bytes.size() / kStripe;
    std::uint64_t hash = (stripes > 0 ? hash_stripes(at, stripes) : kPrime5) + bytes.size();
    std::size_t left = bytes.size() % kStripe;
    for (; left >= 8; left -= 8, at += 8) {
        hash = std::rotl(hash ^ mix(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
    }
    if (left >= 4) {
        hash = std::rotl(hash ^ load<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
        left -= 4;
        at += 4;
    }
    for (; left > 0; --left, ++at) {
        hash = std::rotl(hash ^ static_cast<std::uint64_t>(*at) * kPrime5, 11) * kPrime1;
    }
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
}

}  // namespace ucxstore::files

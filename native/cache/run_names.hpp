// The names of what is kept of a large object, among those of whole values, which are their keys:
// the key, a NUL, which no key has, and the block. What is known of it has none behind the NUL, and
// so comes first.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ucxstore {

inline std::string runs_of(const std::string& key) { return key + '\0'; }

inline std::string run_name(const std::string& key, std::uint64_t block) {
    std::array<char, 17> digits;  // of one length, so that they sort as the numbers do
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(block));
    return runs_of(key) + digits.data();
}

}  // namespace ucxstore

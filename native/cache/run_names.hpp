// Names of the runs of a large value in a cache whose other names are keys: the key, a NUL, which
// no key has, and the number of the run's first block, or byte. A name without a number is for what
// is known of the value, and sorts before its runs.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ucxstore::cache {

inline std::string runs_of(const std::string& key) { return key + '\0'; }

inline std::string run_name(const std::string& key, std::uint64_t number) {
    std::array<char, 17> digits;  // of one length, so that they sort as the numbers do
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
    return runs_of(key) + digits.data();
}

// The number in the name of a run, which begins with `names`, its runs_of().
inline std::uint64_t number_in(const std::string& name, const std::string& names) {
    std::uint64_t number = 0;
    std::from_chars(name.data() + names.size(), name.data() + name.size(), number, 16);
    return number;
}

}  // namespace ucxstore::cache

// The clock of leases: nanoseconds since the host has started, with the time that it was suspended.
// All processes of a host share it.
#pragma once

#include <cstdint>
#include <ctime>

namespace ucxstore::base {

inline std::uint64_t boot_nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace ucxstore::base

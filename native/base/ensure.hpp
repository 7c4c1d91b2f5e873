// Assertions that release builds keep: where one fails, UCX could write to memory that is no longer
// its own. Ending the process is better than that.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace ucxstore::base {

// Ends the process with a line on stderr unless `holds`.
inline void ensure(bool holds, const char* what,
                   const std::source_location& at = std::source_location::current()) {
    if (!holds) [[unlikely]] {
        std::fprintf(stderr, "ucxstore: %s:%u: broken promise: %s\n", at.file_name(),
                     static_cast<unsigned>(at.line()), what);
        std::abort();
    }
}

}  // namespace ucxstore::base

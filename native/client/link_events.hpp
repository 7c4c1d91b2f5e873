// What links report to the loggers.
#pragma once

#include <string_view>

#include "base/log.hpp"
#include "client/operation.hpp"

namespace ucxstore::client {

// `count` is of the requests that an event is about.
void report(base::log::Level level, base::log::EventKind kind, std::string_view peer,
            std::string_view detail, std::uint64_t count = 0);

// Reports an operation that has taken longer than is usual, if it has.
void report_slow(std::string_view peer, const Operation& operation);

}  // namespace ucxstore::client

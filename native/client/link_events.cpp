#include "client/link_events.hpp"

namespace ucxstore {

void report(log::Level level, log::EventKind kind, std::string_view peer, std::string_view detail,
            std::uint64_t count) {
    if (log::wants(log::Area::client, level)) {
        log::add({.area = log::Area::client,
                  .level = level,
                  .kind = kind,
                  .peer = peer,
                  .detail = detail,
                  .count = count});
    }
}

void report_slow(std::string_view peer, const Operation& operation) {
    if (operation.items.empty() || !log::wants(log::Area::client, log::warning)) {
        return;
    }
    const double seconds = std::chrono::duration<double>(operation.age(Clock::now())).count();
    if (const double slow = log::slow_request(); slow > 0 && seconds >= slow) {
        log::add({.area = log::Area::client,
                  .level = log::warning,
                  .kind = log::EventKind::slow_request,
                  .peer = peer,
                  .key = operation.items.front().key,
                  .count = operation.items.size(),
                  .bytes = operation.bytes(),
                  .seconds = seconds});
    }
}

}  // namespace ucxstore

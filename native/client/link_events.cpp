#include "client/link_events.hpp"

namespace ucxstore::client {

void report(base::log::Level level, base::log::EventKind kind, std::string_view peer,
            std::string_view detail, std::uint64_t count) {
    if (base::log::wants(base::log::Area::client, level)) {
        base::log::add({.area = base::log::Area::client,
                        .level = level,
                        .kind = kind,
                        .peer = peer,
                        .detail = detail,
                        .count = count});
    }
}

void report_slow(std::string_view peer, const Operation& operation) {
    if (operation.items.empty() || !base::log::wants(base::log::Area::client, base::log::warning)) {
        return;
    }
    const double seconds = std::chrono::duration<double>(operation.age(base::Clock::now())).count();
    if (const double slow = base::log::slow_request(); slow > 0 && seconds >= slow) {
        base::log::add({.area = base::log::Area::client,
                        .level = base::log::warning,
                        .kind = base::log::EventKind::slow_request,
                        .peer = peer,
                        .key = operation.items.front().key,
                        .count = operation.items.size(),
                        .bytes = operation.bytes(),
                        .seconds = seconds});
    }
}

}  // namespace ucxstore::client

#include "sessions/bounds.hpp"

#include <algorithm>
#include <ctime>

namespace ucxstore::sessions {

Bounds::Bounds(std::string prefix, bool read_only, std::optional<std::int64_t> expires, Role role)
    : prefix_(std::move(prefix)),
      read_only_(read_only),
      role_(role),
      narrow_(!prefix_.empty() || read_only || expires.has_value() || role == Role::op) {
    if (expires) {
        // Far from where the clock's nanoseconds overflow, in the year 2262.
        constexpr std::int64_t kLast = 9'000'000'000;
        expires_ = WallClock::time_point(
            std::chrono::seconds(std::clamp<std::int64_t>(*expires, 0, kLast)));
    }
}

Bounds::Fault Bounds::expiry_fault() const {
    if (!expires_ || WallClock::now() < *expires_) {
        return std::nullopt;
    }
    return "was refused: the grant has expired, it opened " + text();
}

Bounds::Fault Bounds::operate_fault() const {
    if (role_ != Role::client) {
        return expiry_fault();
    }
    const std::string why = narrow_ ? "the grant opens " + text()
                                    : "this client has no secret, and is not of the server's user";
    return "is for operators alone, and " + why;
}

std::optional<Bounds::WallClock::duration> Bounds::left(WallClock::duration after) const {
    if (!expires_) {
        return std::nullopt;
    }
    return std::max(*expires_ + after - WallClock::now(), WallClock::duration::zero());
}

Bounds::Fault Bounds::find_fault(std::string_view key) const {
    if (auto fault = expiry_fault()) {
        return fault;
    }
    if (role_ == Role::op || !key.starts_with(prefix_)) {
        return "is outside of the grant, which opens " + text();
    }
    return std::nullopt;
}

Bounds::Fault Bounds::find_write_fault(std::string_view key) const {
    auto fault = find_fault(key);
    if (!fault && read_only_) {
        fault = "was not changed: the grant opens " + text();
    }
    return fault;
}

// As str(Bounds) in ucxstore/base/grants.py.
std::string Bounds::text() const {
    std::string text = role_ == Role::op ? "requests of operators"
                       : prefix_.empty() ? "everything"
                                         : "'" + prefix_ + "'";
    if (read_only_) {
        text += ", read-only";
    }
    if (expires_) {
        const std::time_t when = WallClock::to_time_t(*expires_);
        std::tm parts{};
        char date[64];
        gmtime_r(&when, &parts);
        text.append(date,
                    std::strftime(date, sizeof(date), ", until %Y-%m-%d %H:%M:%S UTC", &parts));
    }
    return text;
}

}  // namespace ucxstore::sessions

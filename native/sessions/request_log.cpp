#include "sessions/request_log.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace ucxstore::sessions {
namespace {

// As much of a key as a record of the log holds.
constexpr std::size_t kMostKey = 256;

// By protocol::Status.
constexpr std::array<const char*, 21> kEnds{
    "ok",        "missing",  "kept",    "invalid_key", "read_only", "too_large", "wrong_size",
    "bad_range", "storage",  "busy",    "changed",     "ended",     "shown",     "unmoved",
    "denied",    "going_on", "leaving", "unknown",     "altered",   "evicted",   "undecoded"};
static_assert(kEnds.size() == static_cast<std::size_t>(protocol::Status::undecoded) + 1);

}  // namespace

std::uint32_t RequestLog::begin_line(const Asked& asked) {
    const std::string_view key = asked.key.substr(0, kMostKey);
    auto room = client_->account()->hold(Held::request_bytes, sizeof(Line) + key.size());
    if (!room) {
        base::log::queue().count_dropped();
        return 0;
    }
    last_ += last_ == UINT32_MAX ? 2 : 1;
    lines_.insert_or_assign(
        last_, Line{.request = asked.request,
                    .kind = asked.kind,
                    .key = std::string(key),
                    .keys = asked.keys,
                    .bytes = asked.bytes,
                    .begun = asked.begun == base::TimePoint{} ? client_->last_moved() : asked.begun,
                    .room = std::move(*room)});
    return last_;
}

void RequestLog::note_line(std::uint32_t line, protocol::Status status, std::uint64_t bytes) {
    if (const auto found = lines_.find(line); found != lines_.end()) {
        found->second.end = kEnds.at(static_cast<std::size_t>(status));
        found->second.bytes = std::max(found->second.bytes, bytes);
    }
}

void RequestLog::end_line(std::uint32_t line, base::TimePoint now) {
    if (const auto node = lines_.extract(line)) {
        write(node.mapped(), "lost", now);
    }
}

void RequestLog::end_lines(std::optional<std::uint64_t> request, const char* end,
                           base::TimePoint now) {
    std::erase_if(lines_, [&](const auto& entry) {
        const Line& line = entry.second;
        if (request && line.request != *request) {
            return false;
        }
        write(line, end, now);
        return true;
    });
}

void RequestLog::write(const Line& line, const char* end, base::TimePoint now) {
    const std::string kind = base::Latencies::kKinds.at(static_cast<std::size_t>(line.kind));
    const std::string what = kind + " " + (line.end == nullptr ? end : line.end);
    client_->report({.area = base::log::Area::server,
                     .level = base::log::debug,
                     .kind = base::log::EventKind::request,
                     .key = line.key,
                     .detail = what,
                     .count = line.keys,
                     .bytes = line.bytes,
                     .seconds = std::chrono::duration<double>(now - line.begun).count()});
}

}  // namespace ucxstore::sessions

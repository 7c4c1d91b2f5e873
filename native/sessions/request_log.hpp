// The log of requests (level debug): what it will say of those of a client that are under way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/log.hpp"
#include "protocol/wire.hpp"
#include "sessions/client_record.hpp"

namespace ucxstore::sessions {

// On the session's thread.
class RequestLog {
  public:
    explicit RequestLog(std::shared_ptr<ClientRecord> client) : client_(std::move(client)) {}
    RequestLog(const RequestLog&) = delete;
    RequestLog& operator=(const RequestLog&) = delete;

    // Whether requests are logged, which takes one load.
    static bool is_on() { return base::log::wants(base::log::Area::server, base::log::debug); }

    struct Asked {
        std::uint64_t request = 0;
        base::RequestKind kind = base::RequestKind::other;
        std::string_view key = {};  // the first of `keys`, or a prefix
        std::uint64_t keys = 1;
        std::uint64_t bytes = 0;     // of a value that is written
        base::TimePoint begun = {};  // not just now
    };
    // The number of a new line. 0 for none: where requests are not logged, or where the client's
    // account has no room for it; then a line is counted as dropped. The others do nothing for 0.
    std::uint32_t begin(const Asked& asked) { return is_on() ? begin_line(asked) : 0; }
    // The request is answered so, with so many bytes of a value or a listing.
    void note(std::uint32_t line, protocol::Status status, std::uint64_t bytes) {
        if (line != 0) {
            note_line(line, status, bytes);
        }
    }
    // Its reply has gone: logs the line.
    void end(std::uint32_t line, base::TimePoint now) {
        if (line != 0) {
            end_line(line, now);
        }
    }
    // The client has given a request up: logs its lines. Or its session is over: logs all lines.
    void abandon(std::uint64_t request, base::TimePoint now) {
        if (!lines_.empty()) {
            end_lines(request, "abandoned", now);
        }
    }
    void close(base::TimePoint now) { end_lines(std::nullopt, "lost", now); }

  private:
    struct Line {
        std::uint64_t request;
        base::RequestKind kind;
        std::string key;
        std::uint64_t keys;
        std::uint64_t bytes;
        base::TimePoint begun;
        const char* end = nullptr;  // once it is answered
        Hold room;
    };
    std::uint32_t begin_line(const Asked& asked);
    void note_line(std::uint32_t line, protocol::Status status, std::uint64_t bytes);
    void end_line(std::uint32_t line, base::TimePoint now);
    void end_lines(std::optional<std::uint64_t> request, const char* end, base::TimePoint now);
    // `end` is for a line that has none.
    void write(const Line& line, const char* end, base::TimePoint now);

    const std::shared_ptr<ClientRecord> client_;
    std::unordered_map<std::uint32_t, Line> lines_;
    std::uint32_t last_ = 0;
};

}  // namespace ucxstore::sessions

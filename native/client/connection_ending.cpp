// How operations on a connection end: done, failed, cancelled or too late, and when UCX has let go
// of their memory; and how the connection itself does.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.hpp"
#include "base/status.hpp"
#include "client/connection.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// How long a transfer of a finished or cancelled operation may still run before the endpoint is
// closed by force to get its memory back (that ends the other requests on it too).
constexpr auto kReleaseGrace = 1s;

// How long UCX may take to give memory back after that (measured: 0.2 ms). Then the caller gets
// its failure, and the memory is leaked: never freed while UCX may write to it.
constexpr auto kReleaseTimeout = 1s;

std::string seconds(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%g s", value);
    return text;
}

}  // namespace

void Connection::finish(const std::shared_ptr<Operation>& operation) {
    operation->registered = false;
    operations_.erase(operation->id);
    if (operation->failed() && !failed()) {
        send_request({{token_, operation->id, wire::Op::abandon, 0, 0, 0}, {}});
    }
    if (!operation->failed()) {
        report_slow(*operation);
    }
    if (operation->active == 0) {
        operation->complete();
    } else {
        releasing_.emplace(operation->id, std::pair(operation, Clock::now()));
    }
}

void Connection::released(const std::shared_ptr<Operation>& operation) {
    if (operation->active == 0 && releasing_.erase(operation->id) > 0) {
        operation->complete();
    }
}

void Connection::cancel(const std::shared_ptr<Operation>& operation) {
    if (operation->registered) {
        operation->fail(ErrorKind::cancelled, peer_ + ": the request was cancelled");
        finish(operation);
    }
}

void Connection::close(ErrorKind kind, const std::string& message) {
    if (!begin_close()) {
        return;
    }
    cause_ = message;
    values_.clear();
    endpoint_.close();
    for (const auto& [id, operation] : std::exchange(operations_, {})) {
        operation->fail(kind, peer_ + ": " + message);
        finish(operation);
    }
}

void Connection::shut(const char* why) {
    if (!closed_ && log::wants(log::Area::client, log::info)) {
        log::add({.area = log::Area::client,
                  .level = log::info,
                  .kind = log::Kind::closed,
                  .peer = peer_,
                  .detail = why});
    }
    close(ErrorKind::server_lost, why);
}

void Connection::give_up(ErrorKind kind, const std::string& message) {
    if (!closed_ && log::wants(log::Area::client, log::warning)) {
        log::add({.area = log::Area::client,
                  .level = log::warning,
                  .kind = log::Kind::lost,
                  .peer = peer_,
                  .detail = message,
                  .count = operations_.size()});
    }
    close(kind, message);
}

void Connection::report_slow(const Operation& operation) const {
    if (operation.items.empty() || !log::wants(log::Area::client, log::warning)) {
        return;
    }
    const double seconds = std::chrono::duration<double>(operation.age(Clock::now())).count();
    if (const double slow = log::slow_request(); slow > 0 && seconds >= slow) {
        log::add({.area = log::Area::client,
                  .level = log::warning,
                  .kind = log::Kind::slow_request,
                  .peer = peer_,
                  .key = operation.items.front().key,
                  .count = operation.items.size(),
                  .bytes = operation.bytes(),
                  .seconds = seconds});
    }
}

TimePoint Connection::tick(Progress& progress, TimePoint now) {
    if (endpoint_.failed() && !closed_) {
        give_up(ErrorKind::server_lost, "the server is gone (" + endpoint_.cause() + ")");
    }
    if (doom_ && !closed_) {
        give_up(doom_->kind, doom_->message);
    }
    return std::min(time_out(now), release(progress, now));
}

TimePoint Connection::time_out(TimePoint now) {
    TimePoint earliest = TimePoint::max();
    std::vector<std::shared_ptr<Operation>> late;
    for (const auto& [id, operation] : operations_) {
        if (operation->deadline() <= now) {
            late.push_back(operation);
        } else {
            earliest = std::min(earliest, operation->deadline());
        }
    }
    for (const auto& operation : late) {
        if (!operation->registered) {
            continue;  // the one before it took the connection with it
        }
        const auto item = std::ranges::find(operation->items, false, &Item::done);
        const std::string message =
            "nothing came for '" + item->key + "' within " + seconds(operation->timeout_s());
        operation->fail(ErrorKind::timeout, peer_ + ": " + message);
        const bool held = operation->active > 0;
        finish(operation);
        if (held) {
            give_up(
                ErrorKind::server_lost,
                "the connection was reset, as another request on it stood still (" + message + ")");
        }
    }
    return earliest;
}

TimePoint Connection::release(Progress& progress, TimePoint now) {
    TimePoint earliest = TimePoint::max();
    std::vector<std::uint64_t> stuck;
    bool late = false;
    for (auto& [id, entry] : releasing_) {
        const TimePoint due = entry.second + (closed_ ? kReleaseTimeout : kReleaseGrace);
        if (due > now) {
            earliest = std::min(earliest, due);
        } else if (closed_) {
            stuck.push_back(id);
        } else {
            late = true;
        }
    }
    if (!stuck.empty() && worker_ != nullptr) {
        progress.retire(worker_, true);  // gives all back that it can
    }
    for (const std::uint64_t id : stuck) {
        const auto found = releasing_.extract(id);
        if (found.empty()) {
            continue;
        }
        const auto operation = found.mapped().first;
        operation->fail(ErrorKind::server_lost, peer_ + ": UCX did not give the memory back");
        operation->complete(true);
    }
    if (late) {
        give_up(ErrorKind::server_lost,
                "the connection was reset, as a cancelled request on it did not end");
        for (auto& [id, entry] : releasing_) {
            entry.second = now;
        }
        earliest = now + kReleaseTimeout;
    }
    return earliest;
}

}  // namespace ucxstore

// State of a client that the classes behind Session share: what it may do, its counters, when it
// last moved something, and whether its session is to end.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "base/thread_bound.hpp"
#include "server/bounds.hpp"
#include "ucx/progress.hpp"

namespace ucxstore {

// On the session's progress thread, which makes it.
class ClientRecord {
  public:
    ClientRecord(std::shared_ptr<Counters> server, const Admitted& client)
        : bounds_(client.bounds), server_(std::move(server)), client_(server_->add(client.peer)) {}
    ClientRecord(const ClientRecord&) = delete;
    ClientRecord& operator=(const ClientRecord&) = delete;

    const Bounds& bounds() const { return bounds_; }

    // The client has moved something. Each step of a session calls this, so each checks the thread.
    void moved() {
        thread_.check("a session");
        last_moved_ = Clock::now();
    }
    TimePoint last_moved() const { return last_moved_; }

    // The client is gone, or has broken the protocol. Only noted; Session::tick() closes.
    void doom() { doomed_ = true; }
    bool doomed() const { return doomed_; }

    // The session is over: nothing is begun any more.
    void close() {
        thread_.check("closing a session");
        closed_ = true;
    }
    bool closed() const { return closed_; }

    void count_get() { server_->count_get(*client_); }
    void count_missing() { ++server_->gets_missing; }
    void count_set(std::uint64_t bytes) { server_->count_set(*client_, bytes); }
    void count_sent(std::uint64_t bytes) { server_->count_sent(*client_, bytes); }
    void note_in_flight(std::uint64_t bytes) { client_->bytes_in_flight = bytes; }
    void note_waiting(std::uint64_t gets) { client_->gets_waiting = gets; }
    // The lanes to it, once it is connected.
    void set_lanes(std::vector<std::string> lanes) {
        report(log::info, log::Kind::connected, lanes.empty() ? std::string() : lanes.front());
        server_->set_lanes(*client_, std::move(lanes));
    }

    // Logs an event of this client.
    void report(log::Level level, log::Kind kind, std::string_view detail = {}) const {
        if (log::wants(log::Area::server, level)) {
            log::add({.area = log::Area::server,
                      .level = level,
                      .kind = kind,
                      .peer = client_->peer,
                      .detail = detail});
        }
    }

  private:
    const ThreadBound thread_;
    const Bounds bounds_;
    const std::shared_ptr<Counters> server_;
    const std::shared_ptr<ClientCounters> client_;
    TimePoint last_moved_ = Clock::now();
    bool doomed_ = false;
    bool closed_ = false;
};

}  // namespace ucxstore

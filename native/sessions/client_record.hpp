// State of a client that the classes behind Session share: what it may do, its counters and its
// place, when it last moved something, and whether its session is to end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/log.hpp"
#include "base/mandate.hpp"
#include "base/status.hpp"
#include "sessions/account.hpp"
#include "sessions/bounds.hpp"
#include "sessions/places.hpp"
#include "threads/thread_bound.hpp"

namespace ucxstore::sessions {

// When a request came, for its latency; the epoch where that is not counted. And its line in the
// log of requests; 0 for none.
struct Timed {
    base::RequestKind kind = base::RequestKind::other;
    std::uint32_t line = 0;
    base::TimePoint begun{};
};

// On the session's progress thread, which makes it.
class ClientRecord {
  public:
    ClientRecord(std::shared_ptr<base::Counters> server, Places::Place place,
                 const Admitted& client, std::shared_ptr<Account> account)
        : bounds_(client.bounds),
          origin_(client.origin),
          account_(std::move(account)),
          mandate_(std::make_shared<const base::Mandate>(
              origin_,
              [bounds = bounds_] {
                  if (auto fault = bounds.expiry_fault()) {
                      throw base::Error(base::ErrorKind::denied, *fault);
                  }
              })),
          server_(std::move(server)),
          client_(server_->add(client.peer, account_)),
          place_(std::move(place)) {}
    ClientRecord(const ClientRecord&) = delete;
    ClientRecord& operator=(const ClientRecord&) = delete;

    const Bounds& bounds() const { return bounds_; }
    const std::string& origin() const { return origin_; }
    // Its number and its name, for operators.
    std::uint64_t id() const { return client_->id; }
    const std::string& peer() const { return client_->peer; }
    // What the server holds for it, and does for it.
    const std::shared_ptr<Account>& account() const { return account_; }
    // For what other threads do for it.
    const base::MandateRef& mandate() const { return mandate_; }
    // Others may hold it for longer than the session goes on.
    const Places::Place& place() const { return place_; }

    // The client has moved something. Each step of a session calls this, so each checks the thread.
    void moved() {
        thread_.check("a session");
        last_moved_ = base::Clock::now();
    }
    base::TimePoint last_moved() const { return last_moved_; }
    // Tells other threads that.
    void tell() { client_->silent_since = last_moved_; }

    // When the client was asked to hang up for another one; nullopt if it was not.
    std::optional<base::TimePoint> asked() const { return asked_; }
    void note_asked(base::TimePoint now) { asked_ = now; }

    // Whether it knows less of the server than whoever connects now.
    bool is_old() const { return old_; }
    void note_old() { old_ = true; }

    // The client is gone, or has broken the protocol. Only noted; Session::look() tells, and is
    // asked soon: `on_doom` sees to that, for a thread that does not look at it all the time.
    void doom() {
        doomed_ = true;
        if (on_doom_) {
            on_doom_();
        }
    }
    void set_on_doom(std::function<void()> on_doom) { on_doom_ = std::move(on_doom); }
    bool doomed() const { return doomed_; }

    // An operator ends the session, whatever is under way.
    void kick() {
        kicked_ = true;
        doom();
    }
    bool kicked() const { return kicked_; }

    // The session is over: nothing is begun any more.
    void close() {
        thread_.check("closing a session");
        if (!std::exchange(closed_, true) && (asked_ || kicked_)) {
            ++server_->sessions_ended;
        }
        place_.reset();
    }
    bool closed() const { return closed_; }

    void count_get() { server_->count_get(*client_); }
    void count_missing() { ++server_->gets_missing; }
    void count_set(std::uint64_t bytes) { server_->count_set(*client_, bytes); }
    void count_sent(std::uint64_t bytes) { server_->count_sent(*client_, bytes); }
    void count_failed(base::Failing why) { server_->count_failed(why); }
    void count_abandoned() { ++server_->abandoned; }
    // Of a request whose reply has gone just now.
    void count_latency(const Timed& timed) {
        if (timed.begun != base::TimePoint{}) {
            server_->latencies.add(timed.kind, last_moved_ - timed.begun);
        }
    }
    // Where it tells what it reads by itself.
    std::shared_ptr<base::SeenByClient> seen_by() const { return {client_, &client_->seen}; }
    void note_in_flight(std::uint64_t bytes) { client_->bytes_in_flight = bytes; }
    void note_waiting(std::uint64_t gets) { client_->gets_waiting = gets; }
    // The lanes to it, once it is connected.
    void set_lanes(std::vector<std::string> lanes, bool encrypted = false) {
        report(base::log::info, base::log::EventKind::connected,
               lanes.empty() ? std::string() : lanes.front());
        server_->set_lanes(*client_, std::move(lanes), encrypted);
    }

    // Logs an event of this client.
    void report(base::log::Level level, base::log::EventKind kind,
                std::string_view detail = {}) const {
        report({.area = base::log::Area::server, .level = level, .kind = kind, .detail = detail});
    }
    void report(base::log::Event event) const {
        event.peer = client_->peer;
        base::log::add(event);
    }

  private:
    const threads::ThreadBound thread_;
    const Bounds bounds_;
    const std::string origin_;
    const std::shared_ptr<Account> account_;
    const base::MandateRef mandate_;
    const std::shared_ptr<base::Counters> server_;
    const std::shared_ptr<base::ClientCounters> client_;
    Places::Place place_;
    std::optional<base::TimePoint> asked_;
    bool old_ = false;
    base::TimePoint last_moved_ = base::Clock::now();
    bool doomed_ = false;
    bool kicked_ = false;
    std::function<void()> on_doom_;
    bool closed_ = false;
};

}  // namespace ucxstore::sessions

// FairQueue: what waits for one of a few threads, or turns, of all sessions of a server. Origins
// take turns, and the sessions of each origin: first comes who has used least time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace ucxstore::base {

// A session, and its origin (sessions/places.hpp). What is nobody's has neither, and takes turns as
// one more origin.
struct Whose {
    std::string origin = {};
    std::uint64_t session = 0;
};

// Who may be next.
enum class Next : std::uint8_t {
    anybody,
    idle_origins,   // those of whom nothing is being done
    idle_sessions,  // the same of sessions
};

// Not thread-safe. Start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queuing", 1996),
// in two levels. Who has not waited for a while begins with the time of those who have, so nobody
// saves turns up.
template <typename Item>
class FairQueue {
  public:
    using Time = std::chrono::nanoseconds;
    struct Taken {
        Item item;
        Whose whose;
    };

    bool empty() const { return waiting_ == 0; }
    std::size_t size() const { return waiting_; }

    void push(const Whose& whose, Item item) {
        session_of(whose).waiting.push_back({std::move(item), whose});
        count(whose);
    }
    // Before all else of this session.
    void push_first(const Whose& whose, Item item) {
        session_of(whose).waiting.push_front({std::move(item), whose});
        count(whose);
    }

    // Whether take() would return one.
    bool has(Next next) const {
        return std::ranges::any_of(origins_,
                                   [next](const auto& one) { return may_be(one.second, next); });
    }

    // The next one, whose work begins; nullopt where there is none. end() is to be called for it.
    // It takes no memory: what left the queue and went nowhere would be waited for in vain.
    std::optional<Taken> take(Next next = Next::anybody) noexcept {
        static_assert(std::is_nothrow_move_constructible_v<Taken>);
        const auto origin =
            first_of(origins_, [next](const Origin& one) { return may_be(one, next); });
        if (origin == origins_.end()) {
            return std::nullopt;
        }
        Origin& from = origin->second;
        const auto session = first_of(from.sessions, [&](const Session& one) {
            return !one.waiting.empty() && (next == Next::anybody || one.running == 0);
        });
        Session& of = session->second;
        std::optional<Taken> taken(std::move(of.waiting.front()));
        of.waiting.pop_front();
        --from.waiting;
        --waiting_;
        ++of.running;
        ++from.running;
        ++running_;
        now_ = std::max(now_, from.used);
        from.now = std::max(from.now, of.used);
        return taken;
    }

    // The work of one that was taken has ended, and has used so much.
    void end(const Whose& whose, Time used) {
        --running_;
        Origin& origin = origins_.at(whose.origin);
        Session& session = origin.sessions.at(whose.session);
        --origin.running;
        --session.running;
        origin.used += used;
        session.used += used;
        forget_idle(origin.sessions, origin.now);
        if (waiting_ == 0 && running_ == 0) {
            origins_.clear();  // nobody has waited for another
            now_ = Time(0);
        } else {
            forget_idle(origins_, now_);
        }
    }

    // Takes back the last one that was pushed for a session.
    Item pop_last(const Whose& whose) {
        Origin& origin = origins_.at(whose.origin);
        Session& session = origin.sessions.at(whose.session);
        Item item = std::move(session.waiting.back().item);
        session.waiting.pop_back();
        --origin.waiting;
        --waiting_;
        return item;
    }

  private:
    // What one that runs is taken to use, until it has ended.
    static constexpr Time kGuess = std::chrono::milliseconds(20);
    // Of origins, and of sessions of an origin, that are only remembered.
    static constexpr std::size_t kMostIdle = 1024;

    struct Session {
        std::deque<Taken> waiting;
        std::uint64_t running = 0;
        Time used{0};

        bool is_idle() const { return waiting.empty() && running == 0; }
    };
    struct Origin {
        std::map<std::uint64_t, Session> sessions;
        std::uint64_t waiting = 0;
        std::uint64_t running = 0;
        Time used{0};
        Time now{0};  // what those of its sessions have used whose turn it is

        bool is_idle() const { return waiting == 0 && running == 0; }
    };

    template <typename All, typename May>
    static typename All::iterator first_of(All& all, const May& may) {
        auto first = all.end();
        Time least = Time::max();
        for (auto one = all.begin(); one != all.end(); ++one) {
            const Time used = one->second.used + kGuess * one->second.running;
            if (used < least && may(one->second)) {
                first = one;
                least = used;
            }
        }
        return first;
    }

    static bool may_be(const Origin& origin, Next next) {
        if (origin.waiting == 0 || next == Next::anybody || origin.running == 0) {
            return origin.waiting > 0;
        }
        return next == Next::idle_sessions && std::ranges::any_of(origin.sessions, [](auto& one) {
                   return !one.second.waiting.empty() && one.second.running == 0;
               });
    }

    // Those that begin as newcomers would, and the rest of too many.
    template <typename All>
    static void forget_idle(All& all, Time now) {
        const bool many = all.size() > kMostIdle;
        std::erase_if(all, [&](const auto& one) {
            return one.second.is_idle() && (many || one.second.used <= now);
        });
    }

    Session& session_of(const Whose& whose) {
        Origin& origin = origins_[whose.origin];
        if (origin.is_idle()) {
            origin.used = std::max(origin.used, now_);
        }
        Session& session = origin.sessions[whose.session];
        if (session.is_idle()) {
            session.used = std::max(session.used, origin.now);
        }
        return session;
    }
    void count(const Whose& whose) {
        ++origins_.at(whose.origin).waiting;
        ++waiting_;
    }

    std::map<std::string, Origin> origins_;
    std::size_t waiting_ = 0;
    std::size_t running_ = 0;
    Time now_{0};  // what those origins have used whose turn it is
};

}  // namespace ucxstore::base

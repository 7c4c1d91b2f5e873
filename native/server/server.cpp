#include "server/server.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "base/status.hpp"

namespace ucxstore::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrainPoll = 2ms;

// How long clients with nothing under way may take to hang up.
constexpr auto kHangUp = 1s;

sessions::Service service_of(sessions::Storages storages, bool read_only,
                             std::uint64_t most_sessions) {
    auto ledger = std::make_shared<sessions::Ledger>(storages.memory_limit());
    return {.storages = std::move(storages),
            .counters = std::make_shared<base::Counters>(),
            .read_only = read_only,
            .places = std::make_shared<sessions::Places>(most_sessions),
            .ledger = std::move(ledger)};
}

}  // namespace

Server::Server(sessions::Storages storages, int threads, Ucx ucx, bool read_only,
               std::uint64_t most_sessions)
    : pid_(getpid()),
      service_(service_of(std::move(storages), read_only, most_sessions)),
      ucx_(std::move(ucx)) {
    if (threads < 1 || threads > 256) {
        throw base::Error(base::ErrorKind::argument, "threads must be 1 to 256");
    }
    threads_.resize(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) {
        if (!ucx_.when_needed) {
            thread(i)->start_ucx(ucx_.memory);
        }
        local_threads_.push_back(std::make_shared<local_server::LocalThread>(service_, i));
    }
}

std::shared_ptr<ucx_server::UcxThread> Server::thread(int index) {
    const auto place = static_cast<std::size_t>(index);
    const auto known = [&] {
        const base::Lock lock(mutex_);
        if (closed_) {
            throw base::Error(base::ErrorKind::connect, sessions::kServerClosed);
        }
        return threads_.at(place);
    };
    if (auto thread = known()) {
        return thread;
    }
    // Not under the lock: it takes long, and waits for the GIL where UCX must be loaded.
    auto made =
        std::make_shared<ucx_server::UcxThread>(service_, ucx_.options, ucx_.polling, index);
    const base::Lock lock(mutex_);
    if (closed_) {
        throw base::Error(base::ErrorKind::connect, sessions::kServerClosed);
    }
    if (threads_[place] == nullptr) {
        threads_[place] = std::move(made);
    }
    return threads_[place];
}

Server::Threads Server::threads() const {
    const base::Lock lock(mutex_);
    Threads there = threads_;
    std::erase(there, nullptr);
    return there;
}

Server::~Server() {
    if (getpid() != pid_) {
        abandon();
    }
}

// In a forked child, which has no other thread.
void Server::abandon() UNCHECKED_LOCKS {
    for (auto& thread : threads_) {
        new std::shared_ptr<ucx_server::UcxThread>(std::move(thread));
    }
    threads_.clear();
    for (auto& thread : local_threads_) {
        new std::shared_ptr<local_server::LocalThread>(std::move(thread));
    }
    local_threads_.clear();
}

bool Server::answers(std::chrono::milliseconds timeout) {
    struct Waiting {
        base::Mutex mutex;
        base::Condition changed;
        std::size_t left = 0;
    };
    const auto waiting = std::make_shared<Waiting>();
    const auto answer = [waiting] {
        {
            const base::Lock lock(waiting->mutex);
            --waiting->left;
        }
        waiting->changed.notify_all();
    };
    const Threads ucx = threads();
    waiting->left = ucx.size() + local_threads_.size();
    bool all = true;
    for (const auto& thread : ucx) {
        all = thread->post(answer) && all;
    }
    for (const auto& thread : local_threads_) {
        all = thread->post(answer) && all;
    }
    base::UniqueLock lock(waiting->mutex);
    return all && waiting->changed.wait_for(lock, timeout, [&] { return waiting->left == 0; });
}

std::size_t Server::sessions() {
    std::size_t count = 0;
    for (const auto& thread : threads()) {
        count += thread->sessions();
    }
    for (auto& thread : local_threads_) {
        count += thread->sessions();
    }
    return count;
}

std::vector<sessions::YieldingThread*> Server::yielding(const Threads& ucx) const {
    std::vector<sessions::YieldingThread*> all;
    for (const auto& thread : ucx) {
        all.push_back(thread.get());
    }
    for (const auto& thread : local_threads_) {
        all.push_back(thread.get());
    }
    return all;
}

std::string Server::sessions_json(std::uint64_t after) {
    const Threads ucx = threads();
    for (sessions::YieldingThread* const thread : yielding(ucx)) {
        thread->tell_all();
    }
    return counters().sessions_json(after);
}

std::size_t Server::kick(std::optional<std::uint64_t> session, const std::string& origin,
                         std::uint64_t but) {
    const Threads ucx = threads();
    std::size_t kicked = 0;
    for (sessions::YieldingThread* const thread : yielding(ucx)) {
        kicked += thread->kick([&](const sessions::ClientRecord& one) {
            return one.id() != but && (session ? one.id() == *session : one.origin() == origin);
        });
    }
    return kicked;
}

bool Server::make_room(const std::string& origin, std::size_t waiting, bool is_short) {
    const sessions::Places& places = *service_.places;
    const auto has_room = [&] { return !is_short && places.has_room(origin); };
    if (has_room()) {
        return true;
    }
    service_.storages.forget_gone();
    if (has_room()) {
        return true;
    }
    const Threads ucx = threads();
    const std::vector<sessions::YieldingThread*> all = yielding(ucx);
    const base::TimePoint asked_before = base::Clock::now() - kHangUp;
    std::size_t leaving = 0;
    for (sessions::YieldingThread* const thread : all) {
        leaving += thread->end_asked(asked_before);
    }
    const auto ask_most_silent = [&](const std::string& from) {
        sessions::YieldingThread* with_it = nullptr;
        base::TimePoint earliest = base::TimePoint::max();
        for (sessions::YieldingThread* const thread : all) {
            const auto since = thread->silent_since(from);
            if (since && *since < earliest) {
                earliest = *since;
                with_it = thread;
            }
        }
        return with_it != nullptr && with_it->ask_most_silent(from);
    };
    for (const std::string& from : places.that_may_yield(origin)) {
        while (!(is_short && from == origin) && leaving < waiting && ask_most_silent(from)) {
            ++leaving;
        }
    }
    if (has_room()) {
        return true;
    }
    if (leaving == 0) {
        throw base::Error(base::ErrorKind::resource, places.refusal(origin));
    }
    return false;
}

void Server::renew_sessions(std::chrono::milliseconds timeout) {
    const base::TimePoint until = base::Clock::now() + timeout;
    const Threads ucx = threads();
    const std::vector<sessions::YieldingThread*> all = yielding(ucx);
    for (sessions::YieldingThread* const thread : all) {
        thread->ask_for_new();
    }
    while (true) {
        const bool end = base::Clock::now() >= until;
        std::size_t left = 0;
        for (sessions::YieldingThread* const thread : all) {
            left += thread->asked_for_new(end);
        }
        if (left == 0 || end) {
            return;
        }
        std::this_thread::sleep_for(kDrainPoll);
    }
}

bool Server::drain(std::chrono::milliseconds timeout) {
    const base::TimePoint told = base::Clock::now();
    for (const auto& thread : threads()) {
        thread->leave();
    }
    for (const auto& thread : local_threads_) {
        thread->leave();
    }
    const auto is_busy = [](const auto& thread) { return thread->busy(); };
    while (sessions() > 0) {
        const bool busy =
            std::ranges::any_of(threads(), is_busy) || std::ranges::any_of(local_threads_, is_busy);
        const base::TimePoint now = base::Clock::now();
        if (now >= told + timeout || (!busy && now >= told + kHangUp)) {
            return !busy;
        }
        std::this_thread::sleep_for(kDrainPoll);
    }
    return true;
}

void Server::close(std::chrono::milliseconds timeout) {
    {
        const base::Lock lock(mutex_);
        closed_ = true;
    }
    service_.operators->close(timeout);
    for (auto& thread : local_threads_) {
        thread->close();
    }
    for (const auto& thread : threads()) {
        thread->close(timeout);
    }
    service_.walkers->settle(timeout);
    service_.readers->settle(timeout);
    if (service_.storages.decoded != nullptr) {
        service_.storages.decoded->close(timeout);
    }
    if (service_.storages.spaces != nullptr) {
        service_.storages.spaces->end_all();
    }
}

}  // namespace ucxstore::server

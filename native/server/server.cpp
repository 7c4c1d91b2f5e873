#include "server/server.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/recycler.hpp"
#include "base/status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// A client that has something in flight and has not moved it for this long is given up.
constexpr auto kStallTimeout = 60s;

constexpr auto kDrainPoll = 2ms;

constexpr const char* kClosed = "the server is closed";

}  // namespace

ServerThread::ServerThread(Holdings holdings, std::shared_ptr<Counters> counters,
                           const Options& options, bool polling, bool read_only, int index)
    : holdings_(std::move(holdings)),
      counters_(std::move(counters)),
      read_only_(read_only),
      context_(std::make_shared<const Context>(options)),
      progress_(
          std::make_shared<Progress>(*this, polling, "ucxstore-srv" + std::to_string(index))) {
    progress_->post([this] {
        auto& recycler = Recycler::instance();
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

ServerThread::~ServerThread() { close(1s); }

std::unique_ptr<Worker> ServerThread::open() {
    return progress_->call([&] { return std::make_unique<Worker>(context_); }, kClosed);
}

void ServerThread::discard(std::unique_ptr<Worker> worker) {
    std::shared_ptr<Worker> shared = std::move(worker);
    progress_->post([shared = std::move(shared)]() mutable { shared.reset(); });
}

void ServerThread::attach(std::unique_ptr<Worker> worker, Fd fd, const wire::Token& token,
                          const std::string& address, const std::string& peer) {
    progress_->call(
        [&] {
            if (closed_) {
                worker.reset();  // on this thread: workers of one context are not thread-safe
                throw Error(ErrorKind::connect, kClosed);
            }
            const auto session =
                std::make_shared<Session>(std::move(worker), holdings_, progress_, *counters_,
                                          read_only_, token, address, peer);
            begin(session, std::move(fd));
            return true;
        },
        kClosed);
}

void ServerThread::begin(const std::shared_ptr<Session>& session, Fd fd) {
    session->set_control(
        std::make_unique<Control>(*progress_, std::move(fd), [weak = std::weak_ptr(session)] {
            if (const auto lost = weak.lock()) {
                lost->doom();
            }
        }));
    progress_->add(session->worker());
    sessions_.push_back(session);
    ++counters_->sessions;
}

void ServerThread::tick(TimePoint now) {
    for (const auto& session : sessions_) {
        session->meet();
    }
    std::erase_if(sessions_, [&](const std::shared_ptr<Session>& session) {
        const bool stalled =
            session->awaits_client() && now - session->last_moved() > kStallTimeout;
        if (!session->doomed() && !stalled) {
            return false;
        }
        if (session->busy() || session->failed()) {
            ++counters_->sessions_lost;
        }
        session->close();
        ended_.push_back(session);
        return true;
    });
    std::erase_if(ended_, [&](const std::shared_ptr<Session>& session) {
        return session->settle(*progress_, now);
    });
}

TimePoint ServerThread::deadline() const {
    TimePoint earliest = ended_.empty() ? TimePoint::max() : Clock::now() + 1ms;
    for (const auto& session : sessions_) {
        if (session->awaits_client()) {
            earliest = std::min(earliest, session->last_moved() + kStallTimeout);
        }
    }
    return earliest;
}

bool ServerThread::busy() {
    bool busy = false;
    progress_->post_and_wait([&] {
        busy = std::ranges::any_of(sessions_, [](const auto& session) { return session->busy(); });
    });
    return busy;
}

std::size_t ServerThread::sessions() {
    std::size_t count = 0;
    progress_->post_and_wait([&] { count = sessions_.size(); });
    return count;
}

void ServerThread::close(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(closing_);
    if (std::exchange(destroyed_, true)) {
        return;
    }
    progress_->post_and_wait([&] {
        closed_ = true;
        for (const auto& session : std::exchange(sessions_, {})) {
            session->close();
            ended_.push_back(session);
        }
        const TimePoint deadline = Clock::now() + timeout;
        const auto busy = [](const auto& session) { return session->worker().busy(); };
        while (std::ranges::any_of(ended_, busy) && Clock::now() < deadline) {
            for (const auto& session : ended_) {
                session->worker().progress();
            }
        }
        for (const auto& session : ended_) {
            session->settle(*progress_, Clock::now(), true);
        }
        ended_.clear();
    });
    progress_->stop();
}

Server::Server(Holdings holdings, int threads, const Options& options, bool polling, bool read_only)
    : pid_(getpid()), holdings_(std::move(holdings)) {
    if (threads < 1 || threads > 256) {
        throw Error(ErrorKind::argument, "threads must be 1 to 256");
    }
    for (int i = 0; i < threads; ++i) {
        threads_.push_back(
            std::make_shared<ServerThread>(holdings_, counters_, options, polling, read_only, i));
    }
}

Server::~Server() {
    if (getpid() != pid_) {
        abandon();
    }
}

void Server::abandon() {
    for (auto& thread : threads_) {
        new std::shared_ptr<ServerThread>(std::move(thread));
    }
    threads_.clear();
}

std::size_t Server::sessions() {
    std::size_t count = 0;
    for (auto& thread : threads_) {
        count += thread->sessions();
    }
    return count;
}

bool Server::drain(std::chrono::milliseconds timeout) {
    const TimePoint deadline = Clock::now() + timeout;
    while (std::ranges::any_of(threads_, [](auto& thread) { return thread->busy(); })) {
        if (Clock::now() >= deadline) {
            return false;
        }
        std::this_thread::sleep_for(kDrainPoll);
    }
    return true;
}

void Server::close(std::chrono::milliseconds timeout) {
    for (auto& thread : threads_) {
        thread->close(timeout);
    }
    if (holdings_.spaces != nullptr) {
        holdings_.spaces->end_all();
    }
}

}  // namespace ucxstore

#include "server/server.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrainPoll = 2ms;

}  // namespace

ServerThread::ServerThread(Storages storages, std::shared_ptr<Counters> counters,
                           const Options& options, bool polling, bool read_only, int index)
    : PeerThread(options, polling, "ucxstore-srv" + std::to_string(index), "the server is closed"),
      storages_(std::move(storages)),
      counters_(std::move(counters)),
      read_only_(read_only) {}

// Before the members that sessions refer to.
ServerThread::~ServerThread() { close(1s); }

void ServerThread::attach(std::unique_ptr<Worker> worker, Fd fd, const wire::Token& token,
                          const std::string& address, const std::string& peer) {
    adopt(std::move(worker), std::move(fd), [&](std::unique_ptr<Worker> taken) {
        auto session = std::make_shared<Session>(std::move(taken), storages_, progress(),
                                                 *counters_, read_only_, token, address, peer);
        ++counters_->sessions;
        return session;
    });
}

Server::Server(Storages storages, int threads, const Options& options, bool polling, bool read_only)
    : pid_(getpid()), storages_(std::move(storages)) {
    if (threads < 1 || threads > 256) {
        throw Error(ErrorKind::argument, "threads must be 1 to 256");
    }
    for (int i = 0; i < threads; ++i) {
        threads_.push_back(
            std::make_shared<ServerThread>(storages_, counters_, options, polling, read_only, i));
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
    if (storages_.spaces != nullptr) {
        storages_.spaces->end_all();
    }
}

}  // namespace ucxstore

#include "server.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "recycler.hpp"
#include "status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

// A client that has something in flight and has not moved it for this long is given up.
constexpr auto kStallTimeout = 60s;

constexpr auto kDrainPoll = 2ms;

}  // namespace

ServerThread::ServerThread(Backing& backing, Counters& counters, const Options& options,
                           bool polling, bool read_only, int index)
    : backing_(backing),
      counters_(counters),
      read_only_(read_only),
      worker_(std::make_unique<Worker>(options)),
      address_(worker_->address()) {
    worker_->on_message(static_cast<unsigned>(wire::Message::request), &on_request, this);
    worker_->on_message(static_cast<unsigned>(wire::Message::value), &on_value, this);
    progress_ = std::make_unique<Progress>(*worker_, *this, polling,
                                           "ucxstore-srv" + std::to_string(index));
    progress_->post([this] {
        auto& recycler = Recycler::instance();
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

ServerThread::~ServerThread() { close(1s); }

void ServerThread::attach(Fd fd, const wire::Token& token, const std::string& address,
                          const std::string& peer) {
    std::exception_ptr failure;
    auto shared_fd = std::make_shared<Fd>(std::move(fd));
    const bool ran = progress_->post_and_wait([&] {
        try {
            begin(std::move(*shared_fd), token, address, peer);
        } catch (...) {
            failure = std::current_exception();
        }
    });
    if (!ran) {
        throw Error(ErrorKind::connect, "the server is closed");
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

void ServerThread::begin(Fd fd, const wire::Token& token, const std::string& address,
                         const std::string& peer) {
    if (closed_) {
        throw Error(ErrorKind::connect, "the server is closed");
    }
    auto session =
        std::make_shared<Session>(*worker_, backing_, counters_, read_only_, token, address, peer);
    session->set_control(std::make_unique<Control>(*progress_, std::move(fd),
                                                   [this, token] { doomed_.push_back(token); }));
    sessions_.emplace(token, std::move(session));
    ++counters_.sessions;
}

void ServerThread::end(const wire::Token& token) {
    const auto found = sessions_.find(token);
    if (found != sessions_.end()) {
        const auto session = found->second;  // what is in flight holds it a little longer
        sessions_.erase(found);
        if (session->busy()) {
            ++counters_.sessions_lost;
        }
        session->close();
    }
}

void ServerThread::tick(TimePoint now) {
    for (const auto& [token, session] : sessions_) {
        if (session->failed() || (session->busy() && now - session->last_moved() > kStallTimeout)) {
            doomed_.push_back(token);
        }
    }
    for (const wire::Token& token : std::exchange(doomed_, {})) {
        end(token);
    }
}

TimePoint ServerThread::deadline() const {
    TimePoint earliest = TimePoint::max();
    for (const auto& [token, session] : sessions_) {
        if (session->busy()) {
            earliest = std::min(earliest, session->last_moved() + kStallTimeout);
        }
    }
    return earliest;
}

bool ServerThread::busy() {
    bool busy = false;
    progress_->post_and_wait([&] {
        busy =
            std::ranges::any_of(sessions_, [](const auto& entry) { return entry.second->busy(); });
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
    if (worker_ == nullptr) {
        return;
    }
    progress_->post_and_wait([&] {
        closed_ = true;
        while (!sessions_.empty()) {
            end(wire::Token(sessions_.begin()->first));
        }
        const TimePoint deadline = Clock::now() + timeout;
        while (worker_->in_flight + worker_->closing > 0 && Clock::now() < deadline) {
            worker_->progress();
        }
    });
    progress_->stop();
    if (worker_->in_flight > 0) {
        // UCX still holds memory of ours: better a leak than memory that it writes to after us.
        worker_.release()->leak();
    }
    worker_.reset();
}

template <typename Header, typename Handle>
ucs_status_t ServerThread::dispatch(const void* header, std::size_t header_size, Handle handle) {
    // No exception may pass through UCX.
    const auto decoded = wire::read_header<Header>(header, header_size);
    const auto found = decoded ? sessions_.find(decoded->token) : sessions_.end();
    if (found == sessions_.end()) {
        ++counters_.messages_refused;
        return UCS_OK;
    }
    try {
        handle(*found->second, *decoded);
    } catch (const std::exception&) {
        ++counters_.messages_refused;
        doomed_.push_back(found->first);
    }
    return UCS_OK;
}

ucs_status_t ServerThread::on_request(void* self, const void* header, std::size_t header_size,
                                      void* data, std::size_t size,
                                      const ucp_am_recv_param_t* param) {
    return static_cast<ServerThread*>(self)->dispatch<wire::RequestHeader>(
        header, header_size, [&](Session& session, const wire::RequestHeader& decoded) {
            if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || size > wire::kMaxRequestBytes) {
                throw Error(ErrorKind::protocol, "a request that is too large");
            }
            session.on_request(decoded, {static_cast<const std::byte*>(data), size});
        });
}

ucs_status_t ServerThread::on_value(void* self, const void* header, std::size_t header_size,
                                    void* data, std::size_t size,
                                    const ucp_am_recv_param_t* param) {
    return static_cast<ServerThread*>(self)->dispatch<wire::ValueHeader>(
        header, header_size, [&](Session& session, const wire::ValueHeader& decoded) {
            const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
            const std::size_t key_size = header_size - sizeof(decoded);
            if (size != decoded.length || key_size > wire::kMaxKeyBytes) {
                throw Error(ErrorKind::protocol, "a value that is not as long as it says");
            }
            std::string key(static_cast<const char*>(header) + sizeof(decoded), key_size);
            const std::span<const std::byte> bytes(
                rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size);
            session.on_value(decoded, std::move(key), bytes, rendezvous ? data : nullptr);
        });
}

Server::Server(std::shared_ptr<Backing> backing, int threads, const Options& options, bool polling,
               bool read_only)
    : pid_(getpid()), backing_(std::move(backing)) {
    if (threads < 1 || threads > 256) {
        throw Error(ErrorKind::argument, "threads must be 1 to 256");
    }
    for (int i = 0; i < threads; ++i) {
        threads_.push_back(
            std::make_unique<ServerThread>(*backing_, counters_, options, polling, read_only, i));
    }
}

Server::~Server() {
    if (getpid() != pid_) {
        abandon();
    }
}

void Server::abandon() {
    for (auto& thread : threads_) {
        static_cast<void>(thread.release());
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
}

}  // namespace ucxstore

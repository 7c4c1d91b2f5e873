#include "client/client.hpp"

#include <algorithm>
#include <utility>

#include "base/recycler.hpp"
#include "base/status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

constexpr const char* kClosed = "the client is closed";

}  // namespace

Client::Client(const Options& options, bool polling)
    : context_(std::make_shared<const Context>(options)),
      progress_(std::make_unique<Progress>(*this, polling, "ucxstore")) {
    progress_->post([this] {
        auto& recycler = Recycler::instance();
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

Client::~Client() { close(1s); }

std::unique_ptr<Worker> Client::open() {
    return progress_->call([&] { return std::make_unique<Worker>(context_); }, kClosed);
}

void Client::discard(std::unique_ptr<Worker> worker) {
    std::shared_ptr<Worker> shared = std::move(worker);
    progress_->post([shared = std::move(shared)]() mutable { shared.reset(); });
}

std::shared_ptr<Connection> Client::attach(std::unique_ptr<Worker> worker, Fd fd,
                                           const wire::Token& token, const std::string& address,
                                           const std::string& peer) {
    return progress_->call(
        [&] {
            if (closed_) {
                worker.reset();  // on this thread: workers of one context are not thread-safe
                throw Error(ErrorKind::connect, kClosed);
            }
            auto connection = std::make_shared<Connection>(std::move(worker), token, address, peer);
            begin(connection, std::move(fd));
            return connection;
        },
        kClosed);
}

void Client::begin(const std::shared_ptr<Connection>& connection, Fd fd) {
    connection->set_control(
        std::make_unique<Control>(*progress_, std::move(fd), [weak = std::weak_ptr(connection)] {
            if (const auto lost = weak.lock()) {
                lost->doom(ErrorKind::server_lost, "the server is gone");
            }
        }));
    progress_->add(connection->worker());
    connections_.push_back(connection);
}

void Client::submit(const std::shared_ptr<Connection>& connection,
                    const std::shared_ptr<Operation>& operation) {
    if (!progress_->post([connection, operation, this] {
            connection->start(operation);
            deadline_ = std::min(deadline_, operation->deadline());
        })) {
        operation->fail(ErrorKind::server_lost, connection->peer() + ": " + kClosed);
        operation->complete();
    }
}

void Client::cancel(const std::shared_ptr<Connection>& connection,
                    const std::shared_ptr<Operation>& operation) {
    progress_->post([connection, operation, this] {
        connection->cancel(operation);
        deadline_ = Clock::now();
    });
}

void Client::close(const std::shared_ptr<Connection>& connection) {
    progress_->post([connection, this] {
        connection->close(ErrorKind::server_lost, "the connection was closed");
        deadline_ = Clock::now();
    });
}

std::vector<std::string> Client::lanes(const std::shared_ptr<Connection>& connection) {
    std::vector<std::string> lanes;
    progress_->post_and_wait([&] { lanes = connection->lanes(); });
    return lanes;
}

void Client::tick(TimePoint now) {
    deadline_ = TimePoint::max();
    std::erase_if(connections_, [&](const std::shared_ptr<Connection>& connection) {
        const TimePoint due = connection->tick(*progress_, now);
        deadline_ = std::min(deadline_, due);
        if (!connection->closed() || due != TimePoint::max()) {
            return false;
        }
        if (connection->settle(*progress_, now)) {
            return true;
        }
        deadline_ = std::min(deadline_, now + 1ms);
        return false;
    });
}

void Client::close(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(closing_);
    if (std::exchange(destroyed_, true)) {
        return;
    }
    progress_->post_and_wait([&] {
        closed_ = true;
        for (const auto& connection : connections_) {
            connection->close(ErrorKind::server_lost, kClosed);
        }
        const TimePoint deadline = Clock::now() + timeout;
        const auto busy = [](const auto& connection) {
            return connection->has_worker() && connection->worker().busy();
        };
        while (std::ranges::any_of(connections_, busy) && Clock::now() < deadline) {
            for (const auto& connection : connections_) {
                if (connection->has_worker()) {
                    connection->worker().progress();
                }
            }
        }
        for (const auto& connection : connections_) {
            // What UCX has not let go of by now is completed as leaked.
            connection->tick(*progress_, TimePoint::max());
            connection->settle(*progress_, Clock::now(), true);
        }
        connections_.clear();
    });
    progress_->stop();
}

}  // namespace ucxstore

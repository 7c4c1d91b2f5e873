#include "client.hpp"

#include <utility>

#include "recycler.hpp"
#include "status.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;

constexpr const char* kClosed = "the client is closed";

}  // namespace

Client::Client(const Options& options, bool polling)
    : worker_(std::make_unique<Worker>(options)), address_(worker_->address()) {
    worker_->on_message(static_cast<unsigned>(wire::Message::reply), &on_reply, this);
    progress_ = std::make_unique<Progress>(*worker_, *this, polling, "ucxstore");
    progress_->post([this] {
        auto& recycler = Recycler::instance();
        progress_->watch(recycler.timer(), [&recycler] { recycler.trim(); });
    });
}

Client::~Client() { close(1s); }

std::shared_ptr<Connection> Client::attach(Fd fd, const wire::Token& token,
                                           const std::string& address, const std::string& peer) {
    std::shared_ptr<Connection> connection;
    std::exception_ptr failure;
    const bool ran = progress_->post_and_wait([&] {
        try {
            if (closed_) {
                throw Error(ErrorKind::connect, kClosed);
            }
            connection = std::make_shared<Connection>(*worker_, token, address, peer);
            begin(connection, std::move(fd));
        } catch (...) {
            failure = std::current_exception();
            connection.reset();  // here, as it is this thread's endpoint
        }
    });
    if (!ran) {
        throw Error(ErrorKind::connect, kClosed);
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    return connection;
}

void Client::begin(const std::shared_ptr<Connection>& connection, Fd fd) {
    const wire::Token token = connection->token();
    connection->set_control(std::make_unique<Control>(*progress_, std::move(fd), [this, token] {
        doomed_.push_back({token, ErrorKind::server_lost, "the server is gone"});
    }));
    connections_.emplace(token, connection);
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
    for (const Doomed& doomed : std::exchange(doomed_, {})) {
        if (const auto found = connections_.find(doomed.token); found != connections_.end()) {
            found->second->close(doomed.kind, doomed.message);
        }
    }
    deadline_ = TimePoint::max();
    for (auto at = connections_.begin(); at != connections_.end();) {
        const auto connection = at->second;
        const TimePoint due = connection->tick(now);
        deadline_ = std::min(deadline_, due);
        at = connection->closed() && due == TimePoint::max() ? connections_.erase(at)
                                                             : std::next(at);
    }
}

void Client::close(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(closing_);
    if (worker_ == nullptr) {
        return;
    }
    progress_->post_and_wait([&] {
        closed_ = true;
        for (const auto& [token, connection] : connections_) {
            connection->close(ErrorKind::server_lost, kClosed);
        }
        const TimePoint deadline = Clock::now() + timeout;
        while (worker_->in_flight + worker_->closing > 0 && Clock::now() < deadline) {
            worker_->progress();
        }
        // What UCX has not let go of by now is completed as leaked.
        for (const auto& [token, connection] : connections_) {
            connection->tick(TimePoint::max());
        }
        connections_.clear();
    });
    progress_->stop();
    if (worker_->in_flight > 0) {
        worker_.release()->leak();
    }
    worker_.reset();
}

ucs_status_t Client::on_reply(void* self, const void* header, std::size_t header_size, void* data,
                              std::size_t size, const ucp_am_recv_param_t* param) {
    // No exception may pass through UCX.
    auto* client = static_cast<Client*>(self);
    const auto decoded = wire::read_header<wire::ReplyHeader>(header, header_size);
    if (!decoded) {
        return UCS_OK;
    }
    const auto found = client->connections_.find(decoded->token);
    if (found == client->connections_.end()) {
        return UCS_OK;
    }
    const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    const std::span<const std::byte> bytes(
        rendezvous ? nullptr : static_cast<const std::byte*>(data), rendezvous ? 0 : size);
    try {
        found->second->on_reply(*decoded, bytes, size, rendezvous ? data : nullptr);
    } catch (const Error& error) {
        client->doomed_.push_back({decoded->token, error.kind(),
                                   std::string("the server broke the protocol: ") + error.what()});
    } catch (const std::exception& error) {
        client->doomed_.push_back({decoded->token, ErrorKind::server_lost, error.what()});
    }
    return UCS_OK;
}

}  // namespace ucxstore

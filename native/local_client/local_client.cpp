#include "local_client/local_client.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::local_client {
namespace {

constexpr const char* kClosed = "the client is closed";

// How long files that nobody wants any more may be read at the end.
constexpr auto kSettles = std::chrono::seconds(1);

}  // namespace

LocalClient::LocalClient()
    : thread_(std::make_shared<threads::EventThread>(driver_, "ucxstore-local")) {
    threads::watch_recycler(*thread_);
}

// `make` makes a link that tells deadlines to what it is given.
template <typename Make>
auto LocalClient::begin(Make make) {
    return thread_->call(
        [&] {
            if (ended_) {
                throw base::Error(base::ErrorKind::connect, kClosed);
            }
            auto link = make([this](base::TimePoint due) { deadline_ = std::min(deadline_, due); });
            links_.push_back(link);
            try {
                link->begin();
            } catch (...) {
                links_.pop_back();
                throw;
            }
            return link;
        },
        kClosed);
}

std::shared_ptr<LocalLink> LocalClient::attach(base::Fd socket, const protocol::Token& token,
                                               const std::string& peer) {
    return begin([&](auto due) {
        return std::make_shared<LocalLink>(thread_, pool_, std::move(socket), token, peer, due);
    });
}

std::shared_ptr<stream_client::StreamLink> LocalClient::attach_remote(
    base::Fd socket, const protocol::Token& token, const std::string& peer,
    const stream::Protection& protection) {
    return begin([&](auto due) {
        return std::make_shared<stream_client::StreamLink>(thread_, std::move(socket), token, peer,
                                                           due, protection);
    });
}

void LocalClient::tick(base::TimePoint now) {
    if (now < deadline_) {
        return;
    }
    deadline_ = base::TimePoint::max();
    for (const auto& link : links_) {
        try {
            deadline_ = std::min(deadline_, link->tick(now));
        } catch (const std::exception& error) {  // for want of memory
            link->end(base::ErrorKind::memory, error.what(), true);
            deadline_ = base::TimePoint::min();
        }
    }
    std::erase_if(links_, [](const auto& link) { return link->failed() && link->released(); });
}

void LocalClient::end_all(const char* why) noexcept {
    for (const auto& link : links_) {
        link->end(base::ErrorKind::memory, why, true);
    }
    deadline_ = base::TimePoint::min();
}

void LocalClient::close() {
    thread_->post_and_wait([&] {
        ended_ = true;
        for (const auto& link : links_) {
            link->end(base::ErrorKind::server_lost, kClosed, false);
        }
    });
    pool_->settle(kSettles);
    thread_->post_and_wait([&] {
        for (const auto& link : links_) {
            link->abandon();
        }
        links_.clear();
    });
    thread_->stop();
}

}  // namespace ucxstore::local_client

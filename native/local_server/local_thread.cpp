#include "local_server/local_thread.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::local_server {

using stream_server::StreamSession;

LocalThread::LocalThread(const sessions::Service& service, int index)
    : service_(service),
      thread_(
          std::make_shared<threads::EventThread>(driver_, "ucxstore-loc" + std::to_string(index))) {
    threads::watch_recycler(*thread_);
    const auto trims = [this](const std::shared_ptr<shared::Shelf>& shelf) {
        thread_->post(
            [this, shelf] { thread_->watch(shelf->timer(), [shelf] { shelf->trim(); }); });
    };
    if (const auto& decoded = service_.storages.decoded; decoded && decoded->shelf()) {
        trims(decoded->shelf());
    }
    if (const auto& shelf = service_.storages.shelf) {
        trims(shelf);
        drops_ = shelf->watch_drops([this, weak = std::weak_ptr(thread_)](std::uint32_t number) {
            if (const auto thread = weak.lock()) {
                thread->post([this, number] {
                    for (const auto& session : sessions_) {
                        session->drop_arena(local::kMainShelf, number);
                    }
                });
            }
        });
    }
}

void LocalThread::attach(base::Fd socket, const protocol::Token& token,
                         const sessions::Admitted& client, std::string_view answer) {
    begin(std::move(socket), token, client, answer, [this](StreamSession::Parts parts) {
        if (!life_) {
            life_.emplace();
        }
        return std::make_shared<LocalSession>(std::move(parts), life_->descriptor());
    });
}

void LocalThread::attach_remote(base::Fd socket, const protocol::Token& token,
                                const sessions::Admitted& client, std::string_view answer,
                                const stream::Protection& protection) {
    begin(std::move(socket), token, client, answer, [&](StreamSession::Parts parts) {
        return std::make_shared<StreamSession>(parts, protection);
    });
}

void LocalThread::begin(base::Fd socket, const protocol::Token& token,
                        const sessions::Admitted& client, std::string_view answer,
                        const Make& make) {
    thread_->call(
        [&] {
            if (ended_) {
                throw base::Error(base::ErrorKind::connect, sessions::kServerClosed);
            }
            // The session calls it only while it is there.
            auto* const place = new StreamSession*(nullptr);
            std::shared_ptr<StreamSession*> self(place);
            const int fd = socket.get();
            auto session = make({thread_, turns_, std::move(socket), service_, token, client,
                                 [this, self] { look(*self); }});
            if (!session->record().account()->has_room(sessions::Held::descriptors, 1)) {
                throw base::Error(base::ErrorKind::connect,
                                  "descriptors that its origin has passed are still to be closed");
            }
            static_cast<void>(send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
            session->set_on_doom([this] { deadline_ = base::TimePoint::min(); });
            *self = session.get();
            sessions_.push_back(std::move(session));
            look(*self);  // a grant has an end, whether its client ever says something or not
            ++service_.counters->sessions;
            return true;
        },
        sessions::kServerClosed);
}

std::size_t LocalThread::sessions() {
    std::size_t count = 0;
    thread_->post_and_wait([&] { count = sessions_.size(); });
    return count;
}

bool LocalThread::busy() {
    bool busy = false;
    thread_->post_and_wait([&] {
        busy = std::ranges::any_of(sessions_, [](const auto& session) { return session->busy(); });
    });
    return busy;
}

void LocalThread::leave() {
    thread_->post_and_wait([&] {
        for (const auto& session : sessions_) {
            if (!session->closed()) {
                session->leave();
            }
        }
    });
}

void LocalThread::visit(const Visitor& visitor) {
    thread_->post_and_wait([&] {
        std::vector<sessions::Yielding*> open;
        for (const auto& session : sessions_) {
            if (!session->closed()) {
                open.push_back(session.get());
            }
        }
        visitor(open);
        deadline_ = base::Clock::now();
    });
}

void LocalThread::look(StreamSession* session) {
    const base::TimePoint due = tick_of(*session, base::Clock::now());
    deadline_ = session->closed() ? base::TimePoint::min() : std::min(deadline_, due);
}

base::TimePoint LocalThread::tick_of(StreamSession& session, base::TimePoint now) noexcept {
    try {
        return session.tick(now);
    } catch (const std::exception&) {  // for want of memory
        session.lose();
        return now;
    }
}

void LocalThread::lose_all() noexcept {
    for (const auto& session : sessions_) {
        session->lose();
    }
    deadline_ = base::TimePoint::min();
}

void LocalThread::tick(base::TimePoint now) {
    turns_.run();
    if (now < deadline_) {
        return;
    }
    deadline_ = base::TimePoint::max();
    for (const auto& session : sessions_) {
        deadline_ = std::min(deadline_, tick_of(*session, now));
    }
    std::erase_if(sessions_, [](const auto& session) { return session->closed(); });
}

void LocalThread::close() {
    drops_.reset();
    thread_->post_and_wait([&] {
        ended_ = true;
        for (const auto& session : sessions_) {
            session->close();
        }
        sessions_.clear();
        life_.reset();
    });
    thread_->stop();
}

}  // namespace ucxstore::local_server

#include "ucx_server/ucx_thread.hpp"

#include <utility>
#include <vector>

namespace ucxstore::ucx_server {

using namespace std::chrono_literals;

UcxThread::UcxThread(const sessions::Service& service, const ucx::Options& options, bool polling,
                     int index)
    : ucx::PeerThread(options, polling, "ucxstore-srv" + std::to_string(index),
                      sessions::kServerClosed),
      service_(service) {
    progress()->post_and_wait([this] {
        progress()->set_work([this] {
            const bool any = !turns_.empty();
            turns_.run();
            return any;
        });
    });
}

// Before the members that sessions refer to.
UcxThread::~UcxThread() { close(1s); }

void UcxThread::attach(std::unique_ptr<ucx::Worker> worker, base::Fd fd,
                       const protocol::Token& token, const std::string& address,
                       const sessions::Admitted& client) {
    adopt(std::move(worker), std::move(fd), [&](std::unique_ptr<ucx::Worker> taken) {
        auto session = std::make_shared<UcxSession>(std::move(taken), service_, progress(), turns_,
                                                    token, address, client);
        ++service_.counters->sessions;
        return session;
    });
}

void UcxThread::visit(const Visitor& visitor) {
    visit_peers([&](const std::vector<ucx::Peer*>& peers) {
        std::vector<sessions::Yielding*> sessions;
        for (ucx::Peer* const peer : peers) {
            sessions.push_back(static_cast<UcxSession*>(peer));  // attach() makes no others
        }
        visitor(sessions);
    });
}

}  // namespace ucxstore::ucx_server

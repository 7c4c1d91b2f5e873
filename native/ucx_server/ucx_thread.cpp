#include "ucx_server/ucx_thread.hpp"

#include <utility>
#include <vector>

#include "ucx/callers.hpp"

namespace ucxstore {

using namespace std::chrono_literals;

UcxThread::UcxThread(const Service& service, const Options& options, bool polling, int index)
    : PeerThread(options, polling, "ucxstore-srv" + std::to_string(index), kServerClosed),
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

void UcxThread::attach(std::unique_ptr<Worker> worker, Fd fd, const wire::Token& token,
                       const std::string& address, const Admitted& client, const Keys& keys) {
    const Callers callers = callers_of(fd.get(), address);
    adopt(std::move(worker), std::move(fd), [&](std::unique_ptr<Worker> taken) {
        taken->fences().open(callers.hosts, callers.user);
        auto session = std::make_shared<UcxSession>(
            std::move(taken), service_, progress(), turns_, token, address, client,
            keys ? std::make_shared<wire::Seals>(*keys) : nullptr);
        ++service_.counters->sessions;
        return session;
    });
}

void UcxThread::visit(const Visitor& visitor) {
    visit_peers([&](const std::vector<Peer*>& peers) {
        std::vector<Yielding*> sessions;
        for (Peer* const peer : peers) {
            sessions.push_back(static_cast<UcxSession*>(peer));  // attach() makes no others
        }
        visitor(sessions);
    });
}

}  // namespace ucxstore

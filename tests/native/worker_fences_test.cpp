#include "ucx/worker_fences.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/handle.hpp"
#include "loopback.hpp"
#include "ucx/address.hpp"

namespace ucxstore::test {
namespace {

const Host kHere{.v6 = false, .bytes = {127, 0, 0, 1}};
const Host kElsewhere{.v6 = false, .bytes = {127, 0, 0, 2}};

std::unique_ptr<Worker> tcp_worker() {
    return std::make_unique<Worker>(std::make_shared<const Context>(Options{{"TLS", "tcp"}}));
}

std::uint16_t port_of(const Worker& worker) {
    for (const auto& transport : WorkerAddress::read(worker.address()).transports) {
        if (transport.name == transport_name("tcp")) {
            std::uint16_t port;
            std::memcpy(&port, transport.interface.data(), sizeof(port));
            return ntohs(port);
        }
    }
    return 0;
}

// A connection to this port of 127.0.0.1; none where nobody answers for a while.
Fd connect_to(std::uint16_t port) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    pollfd event{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    const bool answered = poll(&event, 1, 400) > 0 && (event.revents & POLLERR) == 0;
    return answered ? std::move(fd) : Fd();
}

// What may_look() says once UCX's own thread has accepted what has come.
bool may_look_soon(WorkerFences& fences) {
    for (int i = 0; i < 2000 && !fences.broken(); ++i) {
        if (fences.may_look(true)) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

TEST(WorkerFencesTest, NobodyConnectsToANewWorker) {
    const auto worker = tcp_worker();
    ASSERT_NE(port_of(*worker), 0);
    EXPECT_FALSE(connect_to(port_of(*worker)));
}

TEST(WorkerFencesTest, IsOpenToItsHostsAlone) {
    const auto worker = tcp_worker();
    worker->fences().open({kElsewhere}, std::nullopt);
    EXPECT_FALSE(connect_to(port_of(*worker)));
    worker->fences().open({kElsewhere, kHere}, std::nullopt);
    EXPECT_TRUE(connect_to(port_of(*worker)));
    worker->fences().shut();
    EXPECT_FALSE(connect_to(port_of(*worker)));
}

TEST(WorkerFencesTest, ReadsHostsOfBothVersionsOfIp) {
    Host v6{.v6 = true};
    v6.bytes.fill(0x20);
    const auto worker = tcp_worker();
    worker->fences().open({v6, kElsewhere, v6}, std::nullopt);
    EXPECT_FALSE(connect_to(port_of(*worker)));
    worker->fences().open({v6, kElsewhere, v6, kHere}, std::nullopt);
    EXPECT_TRUE(connect_to(port_of(*worker)));
}

TEST(WorkerFencesTest, AConnectionGoesOnAfterItIsShut) {
    const auto worker = tcp_worker();
    worker->fences().open({kHere}, std::nullopt);
    const Fd fd = connect_to(port_of(*worker));
    ASSERT_TRUE(fd);
    worker->fences().shut();
    // Not what UCX begins with: it hangs up once it has read that.
    const std::string nonsense(64, 'x');
    ASSERT_EQ(write(fd.get(), nonsense.data(), nonsense.size()), 64);
    pollfd event{.fd = fd.get(), .events = POLLIN, .revents = 0};
    for (int i = 0; i < 2000 && poll(&event, 1, 1) == 0; ++i) {
        worker->progress();
    }
    EXPECT_NE(event.revents & POLLIN, 0);
}

TEST(WorkerFencesTest, LooksAtWhatTheUsersProcessesHaveSent) {
    const auto worker = tcp_worker();
    worker->fences().open({kHere}, geteuid());
    EXPECT_TRUE(worker->fences().guarded());
    EXPECT_FALSE(worker->fences().may_look(false));
    const Fd fd = connect_to(port_of(*worker));
    ASSERT_TRUE(fd);
    EXPECT_TRUE(may_look_soon(worker->fences()));
    EXPECT_FALSE(worker->fences().guarded());
    EXPECT_FALSE(connect_to(port_of(*worker)));
}

TEST(WorkerFencesTest, IsShutWhileUcxLooks) {
    const auto worker = tcp_worker();
    worker->fences().open({kHere}, geteuid());
    EXPECT_TRUE(worker->fences().may_look(true));  // as for shared memory, where nobody connects
    EXPECT_TRUE(worker->fences().guarded());
    EXPECT_FALSE(connect_to(port_of(*worker)));
    EXPECT_FALSE(worker->fences().may_look(false));
    EXPECT_TRUE(connect_to(port_of(*worker)));
}

TEST(WorkerFencesTest, NeverLooksAtWhatAnotherUserHasSent) {
    const auto worker = tcp_worker();
    worker->fences().open({kHere}, geteuid() + 1);
    const Fd fd = connect_to(port_of(*worker));
    ASSERT_TRUE(fd);
    EXPECT_FALSE(may_look_soon(worker->fences()));
    EXPECT_TRUE(worker->fences().broken());
    worker->fences().shut();
    EXPECT_TRUE(worker->fences().broken());
    EXPECT_TRUE(worker->fences().guarded());
    EXPECT_FALSE(worker->progress());
}

TEST(WorkerFencesTest, NeverLooksAtWhatNobodysConnectionHasSent) {
    const auto worker = tcp_worker();
    worker->fences().open({kHere}, geteuid());
    Fd fd = connect_to(port_of(*worker));
    ASSERT_TRUE(fd);
    fd.reset();  // the kernel shows user 0 for it now
    EXPECT_FALSE(may_look_soon(worker->fences()));
    EXPECT_TRUE(worker->fences().broken());
}

TEST(WorkerFencesTest, LeavesOtherSocketsAlone) {
    const auto listens = [] {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        listen(fd.get(), 8);
        return fd;
    };
    const Fd before = listens();
    const auto worker = tcp_worker();
    const Fd after = listens();
    for (const Fd* one : {&before, &after}) {
        EXPECT_TRUE(connect_to(own_end(one->get())->port));
    }
}

}  // namespace
}  // namespace ucxstore::test

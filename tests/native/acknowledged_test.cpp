// Peers that acknowledge, and some that do not any more: their kernel drops what comes.
#include "stream/acknowledged.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "base/handle.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kShort = 500ms;

class AcknowledgedTest : public testing::Test {
  protected:
    AcknowledgedTest() {
        const base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        EXPECT_EQ(bind(listener.get(), generic, size), 0);
        EXPECT_EQ(listen(listener.get(), 1), 0);
        EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
        ours = base::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(connect(ours.get(), generic, size), 0);
        peer = base::Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }

    // From now on the peer's kernel drops all that comes to it.
    void vanish() const {
        sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
        const sock_fprog program{1, &nothing};
        ASSERT_EQ(setsockopt(peer.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
                  0);
    }
    void say(std::size_t bytes) const {
        const std::string text(bytes, 'x');
        EXPECT_GT(send(ours.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    }
    // Sends as much as the kernel takes, which the peer does not read.
    void fill() const {
        const std::string text(1 << 20, 'x');
        while (send(ours.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0 ||
               (std::this_thread::sleep_for(20ms),
                send(ours.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)) {
        }
    }
    // Looks whenever it is due; returns whether the peer acknowledged all that time.
    static bool look_for(stream::Acknowledged& acknowledged, std::chrono::milliseconds time) {
        const base::TimePoint end = base::Clock::now() + time;
        while (base::Clock::now() < end) {
            if (!acknowledged.look(base::Clock::now())) {
                return false;
            }
            std::this_thread::sleep_for(5ms);
        }
        return true;
    }

    base::Fd ours;
    base::Fd peer;
};

TEST_F(AcknowledgedTest, NothingIsLookedForWhereNothingIsUnderWay) {
    stream::Acknowledged acknowledged(ours.get(), kShort);
    EXPECT_EQ(acknowledged.look_at(), base::TimePoint::max());
    say(10);
    acknowledged.sent();
    EXPECT_NE(acknowledged.look_at(), base::TimePoint::max());
    EXPECT_TRUE(look_for(acknowledged, 2 * kShort));
    EXPECT_EQ(acknowledged.look_at(), base::TimePoint::max());
}

TEST_F(AcknowledgedTest, APeerThatHasVanished) {
    stream::Acknowledged acknowledged(ours.get(), kShort);
    std::this_thread::sleep_for(2 * kShort);  // its last acknowledgement is long ago
    vanish();
    say(10);
    acknowledged.sent();
    EXPECT_TRUE(look_for(acknowledged, kShort / 2));
    EXPECT_FALSE(look_for(acknowledged, 10s));
}

TEST_F(AcknowledgedTest, APeerWithoutRoomHasNotVanishedUntilItHas) {
    stream::Acknowledged acknowledged(ours.get(), kShort);
    fill();
    acknowledged.sent();
    EXPECT_TRUE(look_for(acknowledged, 6 * kShort));
    vanish();
    EXPECT_FALSE(look_for(acknowledged, 30s));
}

TEST_F(AcknowledgedTest, ASocketOfAnotherKind) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const base::Fd one(pair[0]);
    const base::Fd other(pair[1]);
    stream::Acknowledged acknowledged(one.get(), kShort);
    acknowledged.sent();
    EXPECT_EQ(acknowledged.look_at(), base::TimePoint::max());
    EXPECT_TRUE(acknowledged.look(base::Clock::now()));
}

}  // namespace
}  // namespace ucxstore::test

#include "ucx/control.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>

#include "base/inherited.hpp"
#include "base/status.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

class Idle : public Progress::Driver {
    void tick(TimePoint) override {}
    TimePoint deadline() const override { return TimePoint::max(); }
};

class ControlTest : public testing::Test {
  protected:
    ControlTest() {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            throw std::runtime_error("socketpair");
        }
        ours_ = Fd(pair[0]);
        peer_ = Fd(pair[1]);
    }
    ~ControlTest() override { destroy(); }

    void make() {
        progress_.post_and_wait([this] {
            control_ = std::make_unique<Control>(progress_, std::move(ours_), [this] { ++ends_; });
        });
    }
    void destroy() {
        progress_.post_and_wait([this] { control_.reset(); });
    }
    // Whether the peer's side has come to its end.
    bool peer_sees_the_end() {
        pollfd entry{.fd = peer_.get(), .events = POLLIN, .revents = 0};
        char byte;
        return poll(&entry, 1, 30'000) == 1 && recv(peer_.get(), &byte, 1, MSG_DONTWAIT) == 0;
    }

    Fd ours_;
    Fd peer_;
    std::atomic<int> ends_ = 0;
    Idle idle_;
    std::unique_ptr<Control> control_;
    Progress progress_{idle_, false, "test"};
};

TEST_F(ControlTest, NoticesTheEndOfThePeerOnce) {
    make();
    EXPECT_EQ(ends_, 0);
    peer_.reset();
    EXPECT_TRUE(eventually([&] { return ends_ == 1; }));
    destroy();
    EXPECT_EQ(ends_, 1);
}

TEST_F(ControlTest, NoticesAnEndThatCameBeforeIt) {
    peer_.reset();
    make();
    EXPECT_TRUE(eventually([&] { return ends_ == 1; }));
}

TEST_F(ControlTest, APeerThatSpeaksIsGivenUp) {
    make();
    ASSERT_EQ(send(peer_.get(), "x", 1, 0), 1);
    EXPECT_TRUE(eventually([&] { return ends_ == 1; }));
}

TEST_F(ControlTest, ClosingTellsThePeerAndNobodyElse) {
    make();
    destroy();
    EXPECT_TRUE(peer_sees_the_end());
    EXPECT_EQ(ends_, 0);
}

TEST_F(ControlTest, ClosingTellsThePeerThoughAChildHoldsTheDescriptor) {
    const Fd inherited(dup(ours_.get()));
    make();
    destroy();
    EXPECT_TRUE(peer_sees_the_end());
}

TEST_F(ControlTest, AChildLetsGoOfTheDescriptor) {
    const int fd = ours_.get();
    make();
    const pid_t child = fork();
    if (child == 0) {
        close_inherited_sockets();
        _exit(fcntl(fd, F_GETFD) == -1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(ends_, 0) << "the child must not shut the connection down";
}

TEST_F(ControlTest, AFailedOneLeavesNothingToCloseInAChild) {
    std::FILE* file = std::tmpfile();  // epoll takes no regular files
    const int fd = dup(fileno(file));
    std::optional<ErrorKind> kind;
    progress_.post_and_wait([&] { kind = error_of([&] { Control(progress_, Fd(fd), [] {}); }); });
    ASSERT_NE(kind, std::nullopt);
    ASSERT_EQ(fcntl(fd, F_GETFD), -1);
    ASSERT_EQ(dup2(fileno(file), fd), fd);  // the number belongs to somebody else now
    close_inherited_sockets();
    EXPECT_EQ(fcntl(fd, F_GETFD), 0);
    close(fd);
    std::fclose(file);
}

}  // namespace
}  // namespace ucxstore::test

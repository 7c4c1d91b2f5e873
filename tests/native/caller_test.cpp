// Callers that wait, and read the replies themselves meanwhile.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "client/array.hpp"
#include "client/batch.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "stream/frames.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

bool becomes(const std::function<bool()>& true_) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < until) {
        if (true_()) {
            return true;
        }
        std::this_thread::sleep_for(1ms);
    }
    return false;
}

// The driver of a thread that has one link.
struct Ticking final : threads::TaskThread::Driver {
    void tick(base::TimePoint now) override {
        due = link == nullptr ? base::TimePoint::max() : link->tick(now);
    }
    base::TimePoint deadline() const override { return due; }
    base::TimePoint due = base::TimePoint::max();
    std::shared_ptr<StreamLink> link;
};

class Caller : public testing::Test {
  protected:
    Caller() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach_remote(std::move(pair.one), token, {"client"}, "", {});
        link = client.attach_remote(std::move(pair.other), token, "server", {});
    }
    void set(const std::string& key, Bytes value) const {
        const auto operation = set_operation({{key, memory_of(value)}});
        link->submit(operation);
        await(*link, operation);
    }
    Bytes get(const std::string& key) const {
        const auto operation = get_operation({{key}});
        link->submit(operation);
        await(*link, operation);
        return reply_of(*operation);
    }

    LocalThread server{Service{Storages(std::shared_ptr<Storage>(std::make_shared<MemoryStorage>(
                                   std::make_shared<Quota>(1ull << 40)))),
                               std::make_shared<Counters>()},
                       0};
    LocalClient client;
    std::shared_ptr<StreamLink> link;
};

TEST_F(Caller, ManyThreadsWaitAtOnce) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < 4; ++id) {
        threads.emplace_back([&, id] {
            for (unsigned i = 0; i < 150; ++i) {
                const std::string key = std::to_string(id) + "/" + std::to_string(i % 7);
                const std::size_t size = i % 50 == 0 ? 9'000'000 : 1 + 977 * i;
                const Bytes value = pattern(size, 1000 * id + i);
                set(key, value);
                wrong += get(key) == value ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
}

TEST_F(Caller, WhoDoesNotWaitIsServedBesides) {
    const auto queue = std::make_shared<CompletionQueue>();
    const Bytes value = pattern(200'000, 3);
    set("key", value);
    std::size_t drained = 0;
    for (int i = 0; i < 200; ++i) {
        auto operation = make_operation({"key"}, Operation::Kind::get, 10, queue);
        want(*operation, {GetItem{}});
        link->submit(operation);
        if (i % 3 != 0) {
            EXPECT_EQ(get("key"), value);
        }
        pollfd event{.fd = queue->fd(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(poll(&event, 1, 10'000), 1);
        drained += queue->drain().size();
        EXPECT_EQ(reply_of(*operation), value);
    }
    EXPECT_EQ(drained, 200);
}

TEST_F(Caller, TheEndOfTheServerIsSeenBetweenCalls) {
    set("key", pattern(10));
    server.close();
    EXPECT_TRUE(becomes([&] { return link->failed(); }));
}

TEST_F(Caller, RunsAfterWhatWasPostedOnly) {
    struct Idle final : threads::TaskThread::Driver {
        void tick(base::TimePoint) override {}
        base::TimePoint deadline() const override { return base::TimePoint::max(); }
    } driver;
    threads::EventThread thread(driver, "test");
    std::atomic<bool> goes_on = false;
    std::atomic<int> ran = 0;
    thread.post([&] {
        while (!goes_on) {
            std::this_thread::sleep_for(1ms);
        }
        ++ran;
    });
    EXPECT_FALSE(thread.stand_in([&] { ran += 100; }));
    goes_on = true;
    EXPECT_TRUE(becomes([&] { return thread.stand_in([&] { ran += ran == 1 ? 10 : 1000; }); }));
    EXPECT_EQ(ran, 11);
    thread.stop();
    EXPECT_FALSE(thread.stand_in([&] { ++ran; }));
    EXPECT_FALSE(thread.wait_and_stand_in([&] { ++ran; }));
    EXPECT_EQ(ran, 11);
}

TEST_F(Caller, ADeadlineThatIsSetHereWakesTheThread) {
    struct Timed final : threads::TaskThread::Driver {
        void tick(base::TimePoint now) override {
            if (now >= due) {
                due = base::TimePoint::max();
                ticked = true;
            }
        }
        base::TimePoint deadline() const override { return due; }
        base::TimePoint due = base::TimePoint::max();
        std::atomic<bool> ticked = false;
    } driver;
    threads::EventThread thread(driver, "test");
    EXPECT_TRUE(
        becomes([&] { return thread.stand_in([&] { driver.due = base::Clock::now() + 20ms; }); }));
    EXPECT_TRUE(becomes([&] { return driver.ticked.load(); }));
}

// The thread was at work when the caller came: it starts the operation, and the caller has not
// begun to read. Nobody read the reply then, until a time of rest was over.
TEST_F(Caller, WhoComesWhileTheThreadIsAtWorkIsAnsweredAtOnce) {
    Ticking driver;
    const auto thread = std::make_shared<threads::EventThread>(driver, "test");
    ControlPair pair = control_pair();
    const Token token = new_token();
    server.attach_remote(std::move(pair.one), token, {"client"}, "", {});
    const auto held = std::make_shared<StreamLink>(
        thread, std::move(pair.other), token, "server",
        [&](base::TimePoint due) { driver.due = std::min(driver.due, due); });
    thread->post([&] {
        driver.link = held;
        held->begin();
    });
    const Bytes value = pattern(1000);
    set("key", value);
    auto fastest = base::Clock::duration::max();
    for (int i = 0; i < 10; ++i) {
        const auto before = get_operation({{"key"}});
        held->submit(before);
        await(*held, before);
        std::atomic<bool> goes_on = false;
        thread->post([&] {
            while (!goes_on) {
                std::this_thread::sleep_for(1ms);
            }
        });
        const auto operation = get_operation({{"key"}});
        held->submit(operation);
        std::thread waits([&] { await(*held, operation); });
        std::this_thread::sleep_for(20ms);
        const base::TimePoint begun = base::Clock::now();
        goes_on = true;
        waits.join();
        fastest = std::min(fastest, base::Clock::now() - begun);
        EXPECT_EQ(reply_of(*operation), value);
    }
    EXPECT_LT(fastest, 50ms);
    held->close();
    thread->stop();
    driver.link.reset();
}

// A link over TCP whose server says nothing, and takes all that is sent: the kernel drops it, which
// takes less time than to encrypt it. So the link hardly ever waits for room.
class GreedyServer : public testing::Test {
  protected:
    static constexpr std::int64_t kRow = 1 << 20;
    static constexpr std::int64_t kRows = 2 * 1024;
    static constexpr std::int64_t kMuch = 256 * kRow;

    GreedyServer() {
        const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        Fd ours(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 1) != 0 ||
            getsockname(listener.get(), generic, &size) != 0 ||
            connect(ours.get(), generic, size) != 0) {
            throw std::runtime_error("a pair of TCP sockets");
        }
        peer = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        SessionKeys keys{};
        keys.send.fill(1);
        link = std::make_shared<StreamLink>(
            thread, std::move(ours), new_token(), "server",
            [this](base::TimePoint due) { driver.due = std::min(driver.due, due); },
            Protection{.keys = keys});
        thread->post_and_wait([this] {
            driver.link = link;
            link->begin();
        });
        takes = std::thread([this] { take_all(); });
    }
    ~GreedyServer() override {
        link->close();
        takes.join();
        waits.join();
        thread->stop();
        driver.link.reset();
    }

    // Calls `come` again and again during a set of 2 GiB, which are the same MiB again and again.
    // Returns how much of it has gone at most until a call has come back.
    std::int64_t most_before(const std::function<void()>& come) {
        const std::vector<std::int64_t> shape{kRows, kRow};
        const std::vector<std::int64_t> strides{0, 1};
        const Memory all(row.data(), Array::strided(row.data(), shape, strides, 1).layout());
        const auto set = set_operation({{"key", all}});
        waits = std::thread([this, set] {
            link->submit(set);
            EXPECT_TRUE(link->wait_for(*set, kPatience));
        });
        EXPECT_TRUE(becomes([&] { return taken > 0; }));
        std::int64_t most = 0;
        while (taken < kRows * kRow / 2) {
            const std::int64_t before = taken;
            come();
            most = std::max(most, taken - before);
        }
        link->cancel(set);
        EXPECT_TRUE(becomes([&] { return set->done(); }));
        EXPECT_LT(taken, kRows * kRow);
        EXPECT_EQ(error_of([&] { set->check(); }), ErrorKind::cancelled);
        return most;
    }

    Bytes row = pattern(kRow);
    Ticking driver;
    const std::shared_ptr<threads::EventThread> thread =
        std::make_shared<threads::EventThread>(driver, "test");
    std::shared_ptr<StreamLink> link;
    Fd peer;
    std::atomic<std::int64_t> taken = 0;
    std::thread takes;
    std::thread waits;

  private:
    void take_all() {
        ssize_t got = 0;
        while ((got = recv(peer.get(), nullptr, 64ull * kRow, MSG_TRUNC)) > 0) {
            taken += got;
        }
    }
};

TEST_F(GreedyServer, TasksHaveTheirTurnsMeanwhile) {
    EXPECT_LT(most_before([&] { thread->post_and_wait([] {}); }), kMuch);
}

TEST_F(GreedyServer, CallersHaveTheirTurnsMeanwhile) {
    EXPECT_LT(most_before([&] { thread->wait_and_stand_in([] {}); }), kMuch);
}

TEST_F(GreedyServer, DeadlinesAreKeptMeanwhile) {
    EXPECT_LT(most_before([&] {
                  const auto get = get_operation({{"other"}}, 0.001);
                  link->submit(get);
                  EXPECT_TRUE(link->wait_for(*get, kPatience));
                  EXPECT_EQ(error_of([&] { get->check(); }), ErrorKind::timeout);
              }),
              kMuch);
}

// A link whose server says nothing.
class SilentServer : public testing::Test {
  protected:
    SilentServer() {
        ControlPair pair = control_pair();
        link = client.attach_remote(std::move(pair.other), new_token(), "server", {});
        peer = std::move(pair.one);
        link->submit(operation);
        pollfd asked{.fd = peer.get(), .events = POLLIN, .revents = 0};
        EXPECT_EQ(poll(&asked, 1, 10'000), 1);
        waits = std::thread([this] { done = link->wait_for(*operation, 30s); });
    }
    ~SilentServer() override { waits.join(); }

    LocalClient client;
    std::shared_ptr<StreamLink> link;
    Fd peer;
    const std::shared_ptr<Operation> operation = get_operation({{"key"}}, 1);
    std::atomic<bool> done = false;
    std::thread waits;
};

TEST_F(SilentServer, TimeIsUp) {
    EXPECT_TRUE(becomes([&] { return done.load(); }));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::timeout);
}

TEST_F(SilentServer, CancelledByAnotherThread) {
    link->cancel(operation);
    EXPECT_TRUE(becomes([&] { return done.load(); }));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::cancelled);
}

TEST_F(SilentServer, ClosedByAnotherThread) {
    link->close();
    EXPECT_TRUE(becomes([&] { return done.load(); }));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::server_lost);
}

TEST_F(SilentServer, ItEnds) {
    peer.reset();
    EXPECT_TRUE(becomes([&] { return done.load(); }));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::server_lost);
    EXPECT_TRUE(link->failed());
}

TEST_F(SilentServer, ItSaysWhatNoServerSays) {
    ASSERT_EQ(send(peer.get(), std::string(100, 'x').data(), 100, MSG_NOSIGNAL), 100);
    EXPECT_TRUE(becomes([&] { return done.load(); }));
    EXPECT_EQ(error_of([&] { operation->check(); }), ErrorKind::protocol);
}

}  // namespace
}  // namespace ucxstore::test

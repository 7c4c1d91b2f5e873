// Peers that stall, go, or are given up, in mid-transfer: every operation ends in bounded time, and
// not a byte is written to its memory afterwards.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "loopback.hpp"
#include "storage/directory.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLarge = std::size_t{40} << 20;  // segments, and time to interrupt them

const Options kTransports[] = {{}, {{"TLS", "tcp"}}};

auto transport_name = [](const auto& info) { return info.param.empty() ? "Default" : "Tcp"; };

// ---------------------------------------------------------------------------------------------
// A server that stands still: its worker is only driven where the test says so.

class StalledServer : public testing::TestWithParam<Options> {
  protected:
    StalledServer() {
        ControlPair pair = control_pair();
        auto worker = client_.open(-1, SharedMemory::on);
        const std::string address = worker->address();
        connection_ = client_.attach(std::move(worker), std::move(pair.one), token_,
                                     puppet_.address(), "stalled");
        puppet_.meet(address);
        control_ = std::move(pair.other);
    }

    std::optional<ErrorKind> failure(const std::shared_ptr<Operation>& operation) {
        EXPECT_TRUE(operation->wait_for(kPatience)) << "it does not end";
        EXPECT_FALSE(operation->leaked());
        return error_of([&] { operation->check(); });
    }
    // Into the middle of a get: the client has begun to receive, and waits for the rest. The puppet
    // must not be driven for it, as it might send all in one go.
    std::shared_ptr<Operation> half_received(Bytes& out, double timeout_s = 60) {
        std::string value(out.size(), 'x');  // beforehand: it takes its time
        const auto operation =
            get_operation({{.key = "small"}, {.key = "k", .memory = memory_of(out)}}, timeout_s);
        const auto after = get_operation({{.key = "after"}});
        client_.submit(connection_, operation);
        client_.submit(connection_, after);
        EXPECT_TRUE(puppet_.until([&] { return puppet_.received().size() == 2; }));
        puppet_.send(Message::reply, raw(reply_header(token_, operation->id, 0, Status::missing)));
        puppet_.flush();  // by now both are connected, and what comes next is about the value
        puppet_.send(Message::reply,
                     raw(reply_header(token_, operation->id, 1, Status::ok, out.size())),
                     std::move(value), Puppet::Way::rendezvous);
        puppet_.send(Message::reply, raw(reply_header(token_, after->id, 0, Status::missing)));
        EXPECT_TRUE(after->wait_for(kPatience)) << "what comes after the value";
        EXPECT_GT(puppet_.in_flight(), 0u);
        return operation;
    }
    // More small values than the peer's queue holds over shared memory: UCX then does not give back
    // all that is in flight when the endpoint is closed.
    std::shared_ptr<Operation> too_many_to_queue(Bytes& value) {
        return set_operation(std::vector<Set>(300, {"small", memory_of(value)}));
    }
    // Drives the puppet on, so that whatever UCX still meant to do is done.
    void awake() {
        puppet_.until([] { return false; }, 300ms);
    }

    Puppet puppet_{GetParam()};
    const Token token_ = new_token();
    Fd control_;
    Client client_{GetParam(), false};
    std::shared_ptr<Connection> connection_;
};

INSTANTIATE_TEST_SUITE_P(All, StalledServer, testing::ValuesIn(kTransports), transport_name);

TEST_P(StalledServer, ARequestTimesOut) {
    const auto operation = get_operation({{.key = "k"}}, 0.2);
    client_.submit(connection_, operation);
    EXPECT_EQ(failure(operation), ErrorKind::timeout);
}

TEST_P(StalledServer, AValueTimesOutAndItsMemoryIsFree) {
    auto value = std::make_unique<Bytes>(pattern(1 << 20));
    const auto operation = set_operation({{"k", memory_of(*value)}}, false, 0.2);
    client_.submit(connection_, operation);
    EXPECT_EQ(failure(operation), ErrorKind::change_timeout);
    value.reset();
    awake();
}

TEST_P(StalledServer, OneThatStallsTakesTheOthersWithItAndSaysSo) {
    Bytes value = pattern(1 << 20);
    const auto stalls = set_operation({{"k", memory_of(value)}}, false, 0.2);
    const auto other = get_operation({{.key = "k"}});
    client_.submit(connection_, stalls);
    client_.submit(connection_, other);
    EXPECT_EQ(failure(stalls), ErrorKind::change_timeout);
    EXPECT_EQ(failure(other), ErrorKind::server_lost);
}

TEST_P(StalledServer, EveryReplyRenewsTheDeadline) {
    std::vector<Get> gets(5, {.key = "k"});
    const auto operation = get_operation(gets, 2.5);
    client_.submit(connection_, operation);
    for (std::uint32_t item = 0; item < gets.size(); ++item) {
        puppet_.until([&] { return operation->done(); }, 700ms);
        puppet_.send(Message::reply,
                     raw(reply_header(token_, operation->id, item, Status::missing)));
    }
    puppet_.flush();
    EXPECT_EQ(failure(operation), std::nullopt);
}

TEST_P(StalledServer, ARequestIsCancelledAtOnceAndTheConnectionGoesOn) {
    const auto operation = get_operation({{.key = "k"}});
    client_.submit(connection_, operation);
    client_.cancel(connection_, operation);
    client_.cancel(connection_, operation);
    EXPECT_EQ(failure(operation), ErrorKind::cancelled);
    const auto next = get_operation({{.key = "k"}});
    client_.submit(connection_, next);
    EXPECT_TRUE(puppet_.until([&] { return puppet_.received().size() == 3; }))
        << "two requests, and word that one was given up";
    // The answer to what was cancelled is not taken for one to anything else.
    for (const auto& answered : {operation, next}) {
        puppet_.send(Message::reply, raw(reply_header(token_, answered->id, 0, Status::missing)));
    }
    EXPECT_TRUE(puppet_.until([&] { return next->done(); }));
    EXPECT_EQ(failure(next), std::nullopt);
}

TEST_P(StalledServer, AHalfReceivedValueIsCancelled) {
    auto out = std::make_unique<Bytes>(kLarge);
    const auto operation = half_received(*out);
    client_.cancel(connection_, operation);
    EXPECT_EQ(failure(operation), ErrorKind::cancelled);
    const Bytes before = *out;
    awake();
    EXPECT_TRUE(*out == before) << "UCX wrote to memory that was given back";
    out.reset();
    awake();
}

TEST_P(StalledServer, AHalfReceivedValueTimesOut) {
    auto out = std::make_unique<Bytes>(kLarge);
    const auto operation = half_received(*out, 2);
    EXPECT_EQ(failure(operation), ErrorKind::timeout);
    out.reset();
    awake();
}

TEST_P(StalledServer, TheClientIsClosedWithAHalfReceivedValue) {
    auto out = std::make_unique<Bytes>(kLarge);
    const auto operation = half_received(*out);
    client_.close(5s);
    EXPECT_TRUE(operation->done());
    EXPECT_EQ(failure(operation), ErrorKind::server_lost);
    out.reset();
    awake();
}

// Over shared memory by Worker::leak(), as UCX itself never lets go of some of it.
TEST_P(StalledServer, TheConnectionIsClosedAmidReadsAndWrites) {
    auto out = std::make_unique<Bytes>(kLarge);
    auto value = std::make_unique<Bytes>(pattern(kLarge));
    auto small = std::make_unique<Bytes>(pattern(100));
    const std::vector<std::shared_ptr<Operation>> operations = {
        half_received(*out), set_operation({{"large", memory_of(*value)}}),
        too_many_to_queue(*small), get_operation({{.key = "k"}})};
    for (std::size_t i = 1; i < operations.size(); ++i) {
        client_.submit(connection_, operations[i]);
    }
    const auto before = Clock::now();
    client_.close(connection_);
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const bool is_sent_change = i == 1 || i == 2;
        EXPECT_EQ(failure(operations[i]),
                  is_sent_change ? ErrorKind::change_lost : ErrorKind::server_lost);
    }
    EXPECT_LT(Clock::now() - before, 2500ms) << "1 s for UCX, and what a sanitizer takes";
    const Bytes after = *out;
    awake();
    EXPECT_TRUE(*out == after) << "UCX wrote to memory that was given back";
    out.reset();
    value.reset();
    small.reset();
    awake();
}

// As where an adapter may still write.
TEST_P(StalledServer, WhatUcxMayStillWriteToIsLeaked) {
    connection_->worker().moves_only_in_progress = false;  // before its thread looks at it
    Bytes out(kLarge);
    Bytes value = pattern(kLarge);
    Bytes small = pattern(100);
    const std::vector<std::shared_ptr<Operation>> operations = {
        half_received(out), set_operation({{"large", memory_of(value)}})};
    client_.submit(connection_, operations[1]);
    client_.submit(connection_, too_many_to_queue(small));
    client_.cancel(connection_, operations[0]);
    EXPECT_FALSE(operations[0]->wait_for(200ms));  // so that both are not overdue at once
    client_.close(connection_);
    for (const auto& operation : operations) {
        ASSERT_TRUE(operation->wait_for(kPatience)) << "it does not end";
        EXPECT_NE(error_of([&] { operation->check(); }), std::nullopt);
        EXPECT_EQ(operation->leaked(), GetParam().empty()) << "over sockets UCX gives it back";
    }
    client_.close(1s);
}

TEST_P(StalledServer, OthersAreServedMeanwhile) {
    Bytes out(kLarge);
    const auto stalls = half_received(out);
    Loopback good(GetParam());
    good.connection = good.connect(client_);
    for (int i = 0; i < 20; ++i) {
        Bytes value = pattern(100'000, static_cast<unsigned>(i));
        const auto set = set_operation({{"k", memory_of(value)}});
        client_.submit(good.connection, set);
        finish(set);
        const auto get = get_operation({{.key = "k"}});
        client_.submit(good.connection, get);
        finish(get);
        EXPECT_EQ(reply_of(*get), value);
    }
    EXPECT_FALSE(stalls->done());
    client_.close(connection_);
    EXPECT_EQ(failure(stalls), ErrorKind::server_lost);
    awake();
}

TEST_P(StalledServer, TheServersEndIsNoticed) {
    auto out = std::make_unique<Bytes>(kLarge);
    const auto receiving = half_received(*out);
    const auto waiting = get_operation({{.key = "k"}});
    client_.submit(connection_, waiting);
    control_.reset();
    EXPECT_EQ(failure(receiving), ErrorKind::server_lost);
    EXPECT_EQ(failure(waiting), ErrorKind::server_lost);
    out.reset();
    awake();
    const auto late = get_operation({{.key = "k"}});
    client_.submit(connection_, late);
    EXPECT_EQ(failure(late), ErrorKind::server_lost);
}

// ---------------------------------------------------------------------------------------------
// Either end closed while values are on their way.

struct Transfer {
    const char* name;
    Options options;
    std::uint64_t run;  // bytes of a piece of the client's memory: they decide who copies
    bool files = false;
};

const Transfer kTransfers[] = {{"Default", {}, kLarge},
                               {"Tcp", {{"TLS", "tcp"}}, kLarge},
                               {"DefaultInPieces", {}, 64},
                               {"TcpInPieces", {{"TLS", "tcp"}}, 64},
                               {"DefaultFromFiles", {}, kLarge, true},
                               {"TcpFromFiles", {{"TLS", "tcp"}}, kLarge, true}};

class MidTransfer : public testing::TestWithParam<Transfer> {
  protected:
    MidTransfer() {
        const auto incoming = both_.storage->receive("k", kLarge);
        incoming->write(0, Bytes(kLarge, std::byte{'x'}));
        incoming->commit(false);
    }
    std::shared_ptr<Storage> storage() const {
        return GetParam().files ? std::make_shared<DirectoryStorage>(directory_.path() / "root")
                                : nullptr;
    }

    // Gets and sets, all under way at once.
    void start() {
        for (auto& out : outs_) {
            out = std::make_unique<Bytes>(GetParam().run == kLarge ? kLarge : 2 * kLarge);
            operations_.push_back(get_operation({{.key = "k", .memory = pieces_of(*out)}}));
        }
        operations_.push_back(set_operation({{"new", pieces_of(*outs_[2])}}));
        operations_[2] = operations_.back();
        operations_.pop_back();
        for (const auto& operation : operations_) {
            both_.submit(operation);
        }
    }
    // As many bytes as a value has, with gaps where they are in pieces.
    Memory pieces_of(Bytes& bytes) {
        const std::uint64_t run = GetParam().run;
        const std::vector<Dim> pieces = {{kLarge / run, static_cast<std::int64_t>(2 * run)}};
        return {bytes.data(), Layout::strided(0, run, pieces)};
    }
    // All have ended; and the memory is free.
    void expect_over(std::optional<ErrorKind> kind) {
        for (const auto& operation : operations_) {
            ASSERT_TRUE(operation->wait_for(kPatience)) << "it does not end";
            EXPECT_FALSE(operation->leaked());
            const auto failed = error_of([&] { operation->check(); });
            const bool is_lost_change =
                kind == ErrorKind::server_lost && failed == ErrorKind::change_lost;
            EXPECT_TRUE(failed == kind || failed == std::nullopt || is_lost_change)
                << static_cast<int>(failed.value_or(ErrorKind::argument));
        }
        for (auto& out : outs_) {
            out.reset();
        }
    }
    bool moving() const { return both_.counters.gets > 0; }

    const TemporaryDirectory directory_;
    Loopback both_{GetParam().options, false, storage()};
    std::unique_ptr<Bytes> outs_[3];
    std::vector<std::shared_ptr<Operation>> operations_;
};

INSTANTIATE_TEST_SUITE_P(All, MidTransfer, testing::ValuesIn(kTransfers),
                         [](const auto& info) { return info.param.name; });

TEST_P(MidTransfer, Cancelled) {
    start();
    ASSERT_TRUE(eventually([&] { return moving(); }));
    for (const auto& operation : operations_) {
        both_.client->cancel(both_.connection, operation);
    }
    expect_over(ErrorKind::cancelled);
    // Whether or not the connection had to be reset for it, the server is well.
    both_.connection = both_.connect();
    EXPECT_TRUE(both_.get("k") == Bytes(kLarge, std::byte{'x'}));
}

TEST_P(MidTransfer, TheConnectionIsClosed) {
    start();
    ASSERT_TRUE(eventually([&] { return moving(); }));
    both_.client->close(both_.connection);
    expect_over(ErrorKind::server_lost);
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 0 && !both_.server->busy(); }));
    both_.connection = both_.connect();
    EXPECT_EQ(both_.stat("k"), kLarge);
}

// A value is pinned while UCX sends it: that must end with the client, or the server's memory fills
// with values that nobody reads any more.
TEST_P(MidTransfer, TheServerUnpinsWhatItWasSending) {
    const std::weak_ptr<const Region> region = both_.storage->find("k");
    const std::vector<Dim> every_other = {{kLarge / 16, 16}};
    const Layout box = Layout::strided(0, 8, every_other);
    for (const auto& selection : {Selection(Layout::contiguous(kLarge)), Selection(box)}) {
        Bytes out(kLarge);
        const std::uint64_t gets = both_.counters.gets;
        const Layout whole = Layout::contiguous(std::get<Layout>(selection).size());
        const auto operation = get_operation(
            {{.key = "k", .selection = selection, .memory = Memory{out.data(), whole}}});
        both_.submit(operation);
        ASSERT_TRUE(eventually([&] { return both_.counters.gets > gets; }));
        both_.client->close(both_.connection);
        ASSERT_TRUE(operation->wait_for(kPatience));
        both_.connection = both_.connect();
    }
    both_.storage->remove("k");
    // 5 s is what a server gives UCX to let go of it.
    EXPECT_TRUE(eventually([&] { return region.expired(); })) << "it is still pinned";
}

TEST_P(MidTransfer, TheClientIsClosed) {
    start();
    ASSERT_TRUE(eventually([&] { return moving(); }));
    both_.client->close(5s);
    for (const auto& operation : operations_) {
        EXPECT_TRUE(operation->done());
    }
    expect_over(ErrorKind::server_lost);
    EXPECT_TRUE(eventually([&] { return both_.server->sessions() == 0; }));
}

TEST_P(MidTransfer, TheServerIsClosed) {
    start();
    ASSERT_TRUE(eventually([&] { return moving(); }));
    both_.server->close(5s);
    both_.storage.reset();
    expect_over(ErrorKind::server_lost);
}

TEST_P(MidTransfer, TheServerClosesItselfOnDestruction) {
    start();
    both_.server.reset();
    expect_over(ErrorKind::server_lost);
}

TEST_P(MidTransfer, TheValueIsReplacedAndRemoved) {
    start();
    for (int i = 0; i < 3; ++i) {
        const auto incoming = both_.storage->receive("k", 1000);
        incoming->write(0, Bytes(1000, std::byte{'y'}));
        incoming->commit(false);
        both_.storage->remove("k");
    }
    for (const auto& operation : operations_) {
        ASSERT_TRUE(operation->wait_for(kPatience));
        operation->check();
    }
    for (int i = 0; i < 2; ++i) {
        const Item& item = operations_[static_cast<std::size_t>(i)]->items[0];
        if (item.status == Status::missing) {
            continue;
        }
        std::vector<ucp_dt_iov_t> pieces;
        item.memory->pieces(0, item.size, pieces);
        for (const ucp_dt_iov_t& piece : pieces) {
            const auto* begin = static_cast<const std::byte*>(piece.buffer);
            const auto is_first = [&](std::byte byte) { return byte == outs_[i]->front(); };
            ASSERT_TRUE(std::all_of(begin, begin + piece.length, is_first));
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Closed ends, and several threads about them.

TEST(Closed, OperationsFailAtOnce) {
    Loopback both;
    both.client->close(1s);
    both.client->close(1s);
    Bytes value = pattern(10);
    EXPECT_EQ(error_of([&] { both.run(get_operation({{.key = "k"}})); }), ErrorKind::server_lost);
    EXPECT_EQ(error_of([&] { both.run(set_operation({{"k", memory_of(value)}})); }),
              ErrorKind::server_lost);
    both.client->cancel(both.connection, get_operation({}));
    both.client->close(both.connection);
    EXPECT_TRUE(both.client->lanes(both.connection).empty());
    EXPECT_EQ(error_of([&] { both.connect(); }), ErrorKind::connect);
}

TEST(Closed, AServerTakesNobody) {
    Loopback both;
    auto worker = both.server->open(-1, SharedMemory::on);
    auto unused = both.server->open(-1, SharedMemory::on);
    both.server->close(1s);
    both.server->close(1s);
    EXPECT_EQ(error_of([&] {
                  both.server->attach(std::move(worker), control_pair().one, new_token(),
                                      both.client->open(-1, SharedMemory::on)->address(), "");
              }),
              ErrorKind::connect);
    EXPECT_EQ(error_of([&] { both.server->open(-1, SharedMemory::on); }), ErrorKind::connect);
    EXPECT_EQ(both.server->sessions(), 0u);
    EXPECT_FALSE(both.server->busy());
    both.server->discard(std::move(unused));
}

TEST(Closed, WorkersThatCameToNothingAreDiscarded) {
    Loopback both;
    both.client->discard(both.client->open(-1, SharedMemory::on));
    both.server->discard(both.server->open(-1, SharedMemory::on));
    const auto late = both.client->open(-1, SharedMemory::on);
    both.client->close(1s);
}

TEST(Closed, AnAddressThatIsNoneIsRefused) {
    Loopback both;
    for (const std::string address : {"", "x", "no address of UCX's"}) {
        EXPECT_EQ(error_of([&] {
                      both.server->attach(both.server->open(-1, SharedMemory::on),
                                          control_pair().one, new_token(), address, "");
                  }),
                  ErrorKind::connect);
        EXPECT_EQ(error_of([&] {
                      both.client->attach(both.client->open(-1, SharedMemory::on),
                                          control_pair().one, new_token(), address, "");
                  }),
                  ErrorKind::connect);
    }
    both.set("k", pattern(10));
}

TEST(Closed, ByTwoThreadsAtOnce) {
    for (int round = 0; round < 5; ++round) {
        Loopback both;
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] { both.client->close(1s); });
            threads.emplace_back([&] { both.server->close(1s); });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
}

TEST(Closed, WhileOthersAttachAndAsk) {
    const Puppet silent;
    for (int round = 0; round < 10; ++round) {
        Client client({}, false);
        std::vector<std::thread> threads;
        std::atomic<int> ready = 0;
        std::atomic<int> stuck = 0;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                try {
                    for (++ready;;) {
                        ControlPair pair = control_pair();
                        const auto connection =
                            client.attach(client.open(-1, SharedMemory::on), std::move(pair.one),
                                          new_token(), silent.address(), "server");
                        const auto ping = call_operation(Op::ping, "");
                        client.submit(connection, ping);
                        client.close(connection);
                        stuck += ping->wait_for(kPatience) ? 0 : 1;
                    }
                } catch (const Error&) {
                    // the client is closed
                }
            });
        }
        ASSERT_TRUE(eventually([&] { return ready == 3; }));
        client.close(1s);
        for (std::thread& thread : threads) {
            thread.join();
        }
        ASSERT_EQ(stuck, 0) << "an operation of a closed client never ended";
    }
}

TEST(Closed, WhileAnotherThreadLooksWhetherItIs) {
    Loopback both;
    std::thread looks([&] {
        while (!both.connection->failed()) {
            std::this_thread::sleep_for(100us);
        }
    });
    both.server->close(1s);
    looks.join();
    EXPECT_TRUE(both.connection->failed());
}

TEST(Closed, AThreadThatWaitsIsWoken) {
    Loopback both;
    const auto operation = get_operation({{.key = "k"}});
    std::thread waits([&] { EXPECT_TRUE(operation->wait_for(kPatience)); });
    both.submit(operation);
    both.client->close(1s);
    waits.join();
}

// ---------------------------------------------------------------------------------------------

// 16 bytes of descriptor for each of these bytes would be 256 MiB.
TEST(Budget, FinelyCutBoxesDoNotFillTheMemory) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "its shadow memory is larger than what is measured";
#endif
    constexpr std::uint64_t kRuns = std::uint64_t{16} << 20;
    constexpr std::uint64_t kAllowance = std::uint64_t{200} << 20;
    Loopback both;
    Bytes out(2 * kRuns);
    both.set("k", out);
    const std::vector<Dim> every_other = {{kRuns, 2}};
    const Layout box = Layout::strided(0, 1, every_other);
    const std::uint64_t before = peak_bytes();
    both.run(get_operation({{.key = "k",
                             .selection = box,
                             .memory = Memory{out.data(), Layout::contiguous(kRuns)},
                             .exact = true}}));
    EXPECT_LT(peak_bytes() - before, kAllowance) << "at the server, to send a box";
    both.run(get_operation({{.key = "k",
                             .selection = Layout::contiguous(kRuns),
                             .memory = Memory{out.data(), box},
                             .exact = true}}));
    EXPECT_LT(peak_bytes() - before, kAllowance) << "at the client, to receive into a box";
    both.run(set_operation({{"new", {out.data(), box}}}));
    EXPECT_LT(peak_bytes() - before, kAllowance) << "at the client, to send a box";
}

}  // namespace
}  // namespace ucxstore::test

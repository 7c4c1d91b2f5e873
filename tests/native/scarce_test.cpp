// Values that have waited for room, and for which the server's memory runs out then.
#include "scarce.hpp"

#include <pthread.h>

#include <array>
#include <thread>
#include <vector>

#include "remote_fixture.hpp"
#include "storage/memory.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kBudget = 1 << 20;

// The client is a puppet, which sends two segments of three: so a value has begun to be received
// when nothing more can happen to it.
class Scarce : public testing::TestWithParam<Options> {
  protected:
    Scarce() {
        ControlPair pair = control_pair();
        auto worker = both_.server->open(-1, SharedMemory::on);
        const std::string address = worker->address();
        both_.server->attach(std::move(worker), std::move(pair.one), token_, puppet_.address(),
                             "puppet");
        control_ = std::move(pair.other);
        puppet_.connect(address);
    }
    ~Scarce() override { control_.reset(); }

    void request(Op op, std::uint64_t number) {
        puppet_.send(Message::request, raw(RequestHeader{token_, number, op, 0, 1, 0}));
    }
    // So what was sent before has been looked at.
    bool is_heard() {
        request(Op::ping, ++ping_);
        return puppet_.until([&] { return reply_to(ping_).has_value(); });
    }
    void begin_value(std::uint64_t number, std::uint64_t total, std::uint64_t segment) {
        for (const std::uint64_t offset : {std::uint64_t(0), segment}) {
            const ValueHeader header{token_, number, 0, 0, total, segment, offset, segment};
            puppet_.send(Message::value, raw(header) + "k", std::string(segment, 'x'),
                         Puppet::Way::rendezvous);
        }
    }
    // What was said to the request of that number; nullopt where nothing was.
    std::optional<std::pair<Status, std::string>> reply_to(std::uint64_t number) {
        for (const auto& [header, text] : puppet_.received()) {
            const auto reply = read_header<ReplyHeader>(header.data(), header.size());
            if (reply->request == number) {
                return std::pair(reply->status, text);
            }
        }
        return std::nullopt;
    }

    // So much, by so many others, that a session has no room of its own.
    std::vector<WriteBudget::Room> all_room() {
        std::vector<WriteBudget::Room> rooms;
        for (const char* const other : {"a", "b", "c", "d", "e"}) {
            rooms.push_back(remote_->writes().take_now(kBudget, other));
        }
        return rooms;
    }

    std::uint64_t ping_ = 1'000'000;
    const std::shared_ptr<CachedSource> remote_ =
        std::make_shared<CachedSource>(64 << 20, kBlock, CachedSource::kForEver, kBudget);
    Loopback both_{remote_, GetParam()};
    const Token token_ = new_token();
    Puppet puppet_{GetParam()};
    Fd control_;
};

INSTANTIATE_TEST_SUITE_P(Transports, Scarce, testing::Values(Options{}, Options{{"TLS", "tcp"}}),
                         [](const auto& one) {
                             return one.param.empty() ? "SharedMemory" : "Tcp";
                         });

// However far the server gets before that: the client is told what it was, has its memory back, and
// the session goes on.
TEST_P(Scarce, MemoryMayRunOutOnceThereIsRoom) {
    ASSERT_TRUE(is_heard());
    std::size_t refused = 0;
    bool ran_out = true;
    for (std::uint64_t number = 1; ran_out && number < 100; ++number) {
        auto others = all_room();
        begin_value(number, 300'000, 100'000);
        ASSERT_TRUE(is_heard());
        ASSERT_EQ(puppet_.in_flight(), 2u) << "it waits";
        {
            const ScarceMemory scarce(refused);
            others.clear();
            ASSERT_TRUE(puppet_.until([&] { return puppet_.in_flight() == 0; }));
            ran_out = scarce.ran_out();
        }
        ASSERT_TRUE(is_heard());
        if (const auto reply = reply_to(number)) {  // else it ran out for something else
            EXPECT_EQ(reply->first, Status::storage);
            EXPECT_EQ(reply->second, "not enough memory");
            ++refused;
        }
        request(Op::abandon, number);
    }
    EXPECT_FALSE(ran_out);
    EXPECT_GE(refused, 7u) << "for its memory, and at least three times for each segment";
    EXPECT_TRUE(eventually([&] { return remote_->writes().taken() == 0; }));
    EXPECT_TRUE(eventually([&] { return !both_.server->busy(); }));
}

// On a thread that is taken for one of a server.
TEST(ScarceStorage, AValueThatIsNotTakenLeavesNothing) {
    std::thread thread([] {
        pthread_setname_np(pthread_self(), "ucxstore-srv-0");
        const auto quota = Quota::of_memory(64 << 20);
        MemoryStorage storage(quota, false, shared::Shelf::make({.bound = quota}));
        storage.receive("a", 5000)->commit(false);
        const std::uint64_t before = quota->used();
        bool ran_out = true;
        for (std::size_t after = 0; ran_out && after < 100; ++after) {
            std::unique_ptr<Incoming> incoming;
            {
                const ScarceMemory scarce(after);
                try {
                    incoming = storage.receive("a key that is not a short one, for its own memory",
                                               20 << 20);
                } catch (const std::bad_alloc&) {
                }
                ran_out = scarce.ran_out();
            }
            EXPECT_EQ(incoming == nullptr, ran_out) << after;
            incoming.reset();
            EXPECT_LE(quota->used(), before + Arenas::kPage) << after;  // the one with the key
        }
        EXPECT_FALSE(ran_out);
    });
    thread.join();
}

TEST_P(Scarce, TheStorageMayHaveNoMemoryForIt) {
    ASSERT_TRUE(is_heard());
    auto others = all_room();
    begin_value(1, protocol::kMaxValueBytes / 4, kSegmentBytes);
    ASSERT_TRUE(is_heard());
    others.clear();
    ASSERT_TRUE(puppet_.until([&] { return reply_to(1) && puppet_.in_flight() == 0; }));
    EXPECT_EQ(reply_to(1)->first, Status::storage);
    EXPECT_NE(reply_to(1)->second.find("Cannot allocate memory"), std::string::npos);
    EXPECT_TRUE(is_heard());
}

}  // namespace
}  // namespace ucxstore::test

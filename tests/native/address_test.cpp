#include "ucx/address.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "base/status.hpp"
#include "loopback.hpp"
#include "ucx/endpoint.hpp"

namespace ucxstore::test {
namespace {

const std::vector<Options> kWays = {
    {{"TLS", "tcp"}}, {{"TLS", "posix,self"}}, {}, {{"ADDRESS_VERSION", "v2"}}};

bool is_refused(const std::string& ours, const std::string& theirs) {
    try {
        check_address(ours, theirs);
        return false;
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::connect);
        return true;
    }
}

// Whether UCX took the address. It may do with it what it likes, but for ending this process.
bool survives(Worker& ours, Worker& theirs, const std::string& address) {
    try {
        Endpoint endpoint(ours, address);
        for (int round = 0; round < 20; ++round) {
            ours.progress();
            theirs.progress();
        }
        endpoint.close();
        while (ours.closing > 0) {
            ours.progress();
        }
        return true;
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::connect);
        return false;
    }
}

TEST(AddressTest, ReadsWhatUcxWrites) {
    for (const Options& options : kWays) {
        const auto worker = new_worker(options);
        const auto address = WorkerAddress::read(worker->address());
        EXPECT_NE(address.worker, 0u);
        EXPECT_FALSE(address.transports.empty());
        const auto other = new_worker(options);
        EXPECT_FALSE(is_refused(worker->address(), other->address()));
        EXPECT_TRUE(is_refused(worker->address(), worker->address()));
    }
}

TEST(AddressTest, OneThatCannotBeReadHasNoEnds) {
    EXPECT_TRUE(tcp_ends("").empty());
    EXPECT_TRUE(tcp_ends("of a later UCX").empty());
}

TEST(AddressTest, KnowsTransportsByTheirNames) {
    const auto worker = new_worker({{"TLS", "tcp"}});
    const auto address = WorkerAddress::read(worker->address());
    ASSERT_EQ(address.transports.size(), 1u);
    EXPECT_EQ(address.transports[0].name, transport_name("tcp"));
    EXPECT_EQ(address.transports[0].interface.size(), 2u);
    EXPECT_TRUE(address.hosts().empty());  // the loopback alone
    EXPECT_TRUE(address.ends().empty());
}

TEST(AddressTest, RefusesOneThatIsTooShortOrTooLong) {
    for (const Options& options : kWays) {
        const auto ours = new_worker(options);
        const auto theirs = new_worker(options);
        const std::string whole = theirs->address();
        for (std::size_t size = 0; size < whole.size(); ++size) {
            EXPECT_TRUE(is_refused(ours->address(), whole.substr(0, size))) << size;
        }
        EXPECT_TRUE(is_refused(ours->address(), whole + '\0'));
        EXPECT_TRUE(is_refused(ours->address(), whole + whole));
    }
}

TEST(AddressTest, RefusesWhatUcxHasNoRoomFor) {
    const auto worker = new_worker({{"TLS", "tcp"}});
    std::string many = worker->address().substr(0, 9);
    many += std::string(1, '\0') + '\0';  // a device without an address, not the last one
    for (int i = 0; i < 200; ++i) {
        many += std::string("ab", 2) + worker->address().substr(0, 0);
        const float speeds[] = {1, 1, 1};
        many.append(reinterpret_cast<const char*>(speeds), sizeof(speeds));
        many += std::string(4, '\0') + '\0';
    }
    EXPECT_TRUE(is_refused(worker->address(), many));
}

TEST(AddressTest, RefusesSpeedsThatAreNoNumbers) {
    const auto ours = new_worker({{"TLS", "tcp"}});
    const auto theirs = new_worker({{"TLS", "tcp"}});
    const auto transport = WorkerAddress::read(theirs->address()).transports.at(0);
    // Before the length of its interface's address: three floats and four bytes.
    const auto speeds =
        static_cast<std::size_t>(transport.interface.data() - theirs->address().data()) - 17;
    for (std::size_t i = 0; i < 3; ++i) {
        std::string changed = theirs->address();
        const float bad = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(changed.data() + speeds + i * sizeof(bad), &bad, sizeof(bad));
        EXPECT_TRUE(is_refused(ours->address(), changed)) << i;
    }
}

// UCX gets those that are not refused, and must neither crash nor abort. A worker takes several, as
// it takes long to make one.
TEST(AddressTest, UcxSurvivesMutatedAddresses) {
    std::mt19937 random(5);
    for (const Options& options : kWays) {
        const auto theirs = new_worker(options);
        int taken = 0;
        for (int workers = 0; workers < 4; ++workers) {
            const auto ours = new_worker(options);
            for (int i = 0; i < 30; ++i) {
                std::string changed = theirs->address();
                for (int bytes = 1 + i % 3; bytes > 0; --bytes) {
                    changed[1 + random() % (changed.size() - 1)] = static_cast<char>(random());
                }
                taken += survives(*ours, *theirs, changed) ? 1 : 0;
            }
        }
        EXPECT_GT(taken, 0);
    }
}

}  // namespace
}  // namespace ucxstore::test

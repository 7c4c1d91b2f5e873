#include "ucx/transports.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/status.hpp"
#include "rooms.hpp"

namespace ucxstore::test {
namespace {

using Wanted = std::optional<std::string>;

TEST(TransportsTest, NoneOfSharedMemoryUnlessBothSidesAsk) {
    const std::vector<std::tuple<Wanted, std::string>> cases = {
        {std::nullopt, "^posix,sysv,cma,knem,xpmem"},
        {"all", "^posix,sysv,cma,knem,xpmem"},
        {"rc,all", "^posix,sysv,cma,knem,xpmem"},
        {"*", "^posix,sysv,cma,knem,xpmem"},
        {"tcp", "tcp"},
        {"tcp,sm,self", "tcp,self"},
        {"rc,ud:aux,\\posix,sysv,cma", "rc,ud:aux"},
        {"shm,mm,knem,xpmem,tcp", "tcp"},
        {"p*,tcp,sys?", "tcp"},
        {"^cuda", "^cuda,posix,sysv,cma,knem,xpmem"},
        {"^sm", "^posix,sysv,cma,knem,xpmem"},
    };
    for (const auto& [wanted, expected] : cases) {
        EXPECT_EQ(transports(wanted, SharedMemory::off), expected) << wanted.value_or("");
    }
}

TEST(TransportsTest, PosixAloneIfBothAsk) {
    const std::vector<std::tuple<Wanted, std::string>> cases = {
        {std::nullopt, "^sysv,cma,knem,xpmem"},
        {"all", "^sysv,cma,knem,xpmem"},
        {"tcp", "tcp"},
        {"tcp,sm,self", "tcp,self,posix"},
        {"sysv,tcp", "tcp"},
        {"posix", "posix"},
        {"^cuda", "^cuda,sysv,cma,knem,xpmem"},
        {"^sm", "^posix,sysv,cma,knem,xpmem"},
        {"^posix", "^posix,sysv,cma,knem,xpmem"},
    };
    for (const auto& [wanted, expected] : cases) {
        EXPECT_EQ(transports(wanted, SharedMemory::on), expected) << wanted.value_or("");
    }
}

TEST(TransportsTest, RefusesWhatLeavesNothing) {
    for (const auto& [wanted, memory] :
         std::vector<std::tuple<std::string, SharedMemory>>{{"sm,self", SharedMemory::off},
                                                            {"posix", SharedMemory::off},
                                                            {"sysv", SharedMemory::on},
                                                            {"self", SharedMemory::on}}) {
        try {
            transports(wanted, memory);
            ADD_FAILURE() << wanted;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::argument);
            EXPECT_NE(std::string(error.what()).find("TLS=" + wanted), std::string::npos);
        }
    }
}

}  // namespace
}  // namespace ucxstore::test

// A reader sees the end of a server's thread at once, however it ends.
#include "shared/life.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "base/status.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

Fd copy_of(int descriptor) { return Fd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

TEST(Life, IsOverOnceItIsDestroyed) {
    std::optional<Life> life(std::in_place);
    const LifeWatch watch(copy_of(life->descriptor()));
    EXPECT_FALSE(watch.over());
    life.reset();
    EXPECT_TRUE(watch.over());
}

TEST(Life, IsOverOnceItsThreadHasEnded) {
    std::optional<LifeWatch> watch;
    std::thread([&] {
        static auto* const life = new Life;  // which nobody destroys
        watch.emplace(copy_of(life->descriptor()));
        EXPECT_FALSE(watch->over());
    }).join();
    EXPECT_TRUE(watch->over());
}

TEST(Life, IsOverOnceItsProcessWasKilled) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
        const Life life;
        const int number = life.descriptor();
        static_cast<void>(!write(told[1], &number, sizeof(number)));
        pause();
        _exit(1);
    }
    int number = -1;
    ASSERT_EQ(read(told[0], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
    const Fd descriptor(open(
        ("/proc/" + std::to_string(child) + "/fd/" + std::to_string(number)).c_str(), O_RDONLY));
    const LifeWatch watch(descriptor);
    EXPECT_FALSE(watch.over());
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(watch.over());
    close(told[0]);
    close(told[1]);
}

TEST(Life, CannotBeChangedByReaders) {
    const Life life;
    const Fd descriptor = copy_of(life.descriptor());
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0),
              MAP_FAILED);
    EXPECT_EQ(pwrite(descriptor.get(), "x", 1, 0), -1);
}

TEST(Life, OfAnotherKindIsRefused) {
    const Fd other(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(error_of([&] { LifeWatch watch(other); }), ErrorKind::protocol);
    EXPECT_EQ(error_of([&] { LifeWatch watch{Fd(open("/dev/null", O_RDONLY))}; }),
              ErrorKind::protocol);
}

}  // namespace
}  // namespace ucxstore::test

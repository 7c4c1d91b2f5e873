// Pins of a process and of those that it forks: each holds what it has, for as long as it has it.
#include "shared/pins.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "support.hpp"

namespace ucxstore::test {
namespace {

// A process that was forked, and does what it is told.
class Child {
  public:
    // Runs `act` in the child, with a function that waits for the next go_on().
    using Wait = std::function<void()>;
    explicit Child(const std::function<void(const Wait&)>& act) {
        int told[2];
        int tells[2];
        EXPECT_EQ(pipe2(told, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(tells, O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0) {
            const Fd ear(told[0]);
            const Fd mouth(tells[1]);
            close(told[1]);
            close(tells[0]);
            act([&] {
                char byte = 'x';
                if (write(mouth.get(), &byte, 1) != 1 || read(ear.get(), &byte, 1) != 1) {
                    _exit(2);
                }
            });
            _exit(0);
        }
        close(told[0]);
        close(tells[1]);
        mouth_ = Fd(told[1]);
        ear_ = Fd(tells[0]);
        listen();
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() { end(); }

    // Lets it go on, until it waits again or has ended.
    void go_on() {
        const char byte = 'x';
        EXPECT_EQ(write(mouth_.get(), &byte, 1), 1);
        listen();
    }
    void kill() {
        ::kill(pid_, SIGKILL);
        end();
    }
    // Its exit status.
    int end() {
        int status = 0;
        mouth_.reset();
        if (pid_ > 0) {
            EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
            pid_ = 0;
        }
        return status;
    }

  private:
    void listen() {
        char byte;
        static_cast<void>(!read(ear_.get(), &byte, 1));
    }

    pid_t pid_ = 0;
    Fd mouth_;
    Fd ear_;
};

class Forking : public testing::Test {
  protected:
    Forking() : table(std::make_shared<PinTable>()) { pins.emplace(table->take_descriptors()); }

    std::atomic<Place>* pin(Place place, bool passed_on = true) {
        std::atomic<Place>* const one = pins->take();
        one->store(place);
        if (passed_on) {
            pins->pass_on(one);
        }
        return one;
    }
    bool pinned(Place place) const {
        std::unordered_set<Place> found;
        table->collect(
            [&](std::span<const Place> places) { found.insert(places.begin(), places.end()); });
        return found.contains(place);
    }

    const std::shared_ptr<PinTable> table;
    std::optional<Pins> pins;
};

TEST_F(Forking, TheChildHoldsWhatTheParentLetsGo) {
    std::atomic<Place>* const one = pin(7);
    Child child([&](const Child::Wait& wait) {
        wait();
        pins->give(one);
        wait();
    });
    pins->give(one);
    EXPECT_TRUE(pinned(7));
    child.go_on();
    EXPECT_FALSE(pinned(7));
}

TEST_F(Forking, TheParentHoldsWhatTheChildLetsGo) {
    std::atomic<Place>* const one = pin(7);
    Child child([&](const Child::Wait& wait) {
        pins->give(one);
        wait();
    });
    EXPECT_TRUE(pinned(7));
    EXPECT_EQ(child.end(), 512);  // nobody lets it go on
    EXPECT_TRUE(pinned(7));
    pins->give(one);
    EXPECT_FALSE(pinned(7));
}

TEST_F(Forking, WhatAKilledChildHasIsFree) {
    std::atomic<Place>* const one = pin(7);
    Child child([&](const Child::Wait& wait) { wait(); });
    pins->give(one);
    EXPECT_TRUE(pinned(7));
    child.kill();
    EXPECT_FALSE(pinned(7));
    EXPECT_FALSE(table->reader_gone());
}

TEST_F(Forking, TheChildHoldsItAfterTheParentHasGone) {
    std::atomic<Place>* const one = pin(7);
    static_cast<void>(one);
    Child child([&](const Child::Wait& wait) {
        wait();
        wait();
    });
    pins.reset();  // as a process that ends, without letting go of anything
    EXPECT_TRUE(pinned(7));
    EXPECT_FALSE(table->reader_gone());
    child.go_on();
    child.kill();
    EXPECT_FALSE(pinned(7));
    EXPECT_TRUE(table->reader_gone());
}

TEST_F(Forking, AChildWithoutAnythingHoldsNothing) {
    std::atomic<Place>* const own = pin(9, false);
    Child child([&](const Child::Wait& wait) {
        own->store(0);  // as a region that the child destroys
        pins->give(own);
        wait();
    });
    EXPECT_TRUE(pinned(9)) << "it cannot let go of what is its parent's";
    pins->give(own);
    EXPECT_FALSE(pinned(9));
    pins.reset();
    EXPECT_TRUE(table->reader_gone()) << "the child keeps nothing open";
}

TEST_F(Forking, WhatIsNotPassedOnIsTheParentsAlone) {
    pin(7);
    std::atomic<Place>* const own = pin(9, false);
    Child child([&](const Child::Wait& wait) { wait(); });
    pins->give(own);
    EXPECT_FALSE(pinned(9));
    EXPECT_TRUE(pinned(7));
}

TEST_F(Forking, GenerationsLetGoInEachOrder) {
    // Which of three generations lets go first, second and last.
    const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                  {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto& order : orders) {
        std::atomic<Place>* const one = pin(7);
        int inner[2];
        ASSERT_EQ(pipe2(inner, O_CLOEXEC), 0);
        Child child([&](const Child::Wait& wait) {
            // Of the grandchild, this one's child: it lets go when the pipe says so.
            const pid_t pid = fork();
            if (pid == 0) {
                char byte;
                close(inner[1]);
                static_cast<void>(!read(inner[0], &byte, 1));
                pins->give(one);
                pause();
            }
            close(inner[0]);
            wait();
            pins->give(one);
            wait();
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        });
        close(inner[0]);
        for (std::size_t step = 0; step < order.size(); ++step) {
            EXPECT_TRUE(pinned(7)) << step;
            if (order[step] == 0) {
                pins->give(one);
            } else if (order[step] == 1) {
                child.go_on();
            } else {
                ASSERT_EQ(write(inner[1], "x", 1), 1);
                EXPECT_TRUE(step < 2 || eventually([&] { return !pinned(7); }));
            }
        }
        EXPECT_TRUE(eventually([&] { return !pinned(7); }));
        close(inner[1]);
        child.go_on();
    }
}

TEST_F(Forking, ManyChildrenTakeTurns) {
    for (int round = 0; round < 300; ++round) {
        std::atomic<Place>* const one = pin(static_cast<Place>(round + 1));
        Child child([&](const Child::Wait& wait) {
            wait();
            pins->give(one);
        });
        pins->give(one);
        ASSERT_TRUE(pinned(static_cast<Place>(round + 1)));
        child.go_on();
        ASSERT_EQ(child.end(), 0);
        ASSERT_FALSE(pinned(static_cast<Place>(round + 1)));
    }
}

// Where there is no descriptor for a table of its own, the child lives on its parent's pins, which
// then end with both.
TEST_F(Forking, WithoutATableWhatIsHeldStays) {
    std::atomic<Place>* const one = pin(7);
    std::optional<Child> child;
    {
        // The child's pipes are there already when descriptors run out.
        rlimit before{};
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        const rlimit none{0, before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            char byte;
            close(ends[1]);
            pins->give(one);  // which must not free it for the parent
            static_cast<void>(!read(ends[0], &byte, 1));
            _exit(0);
        }
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        close(ends[0]);
        EXPECT_TRUE(pinned(7));
        pins->give(one);
        EXPECT_TRUE(pinned(7)) << "the child may have it still";
        pins.reset();
        EXPECT_TRUE(pinned(7));
        EXPECT_FALSE(table->reader_gone());
        close(ends[1]);
        EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
    }
    EXPECT_FALSE(pinned(7));
    EXPECT_TRUE(table->reader_gone());
}

TEST_F(Forking, AChildThatIsHostileHarmsOnlyItself) {
    // It writes nonsense to its table.
    pin(7);
    Child child([&](const Child::Wait& wait) {
        for (int i = 0; i < 100; ++i) {
            std::atomic<Place>* const junk = pins->take();
            junk->store(~Place{0} - static_cast<Place>(i));
        }
        wait();
    });
    EXPECT_TRUE(pinned(7));
    EXPECT_TRUE(pinned(~Place{0}));
    child.kill();
    EXPECT_FALSE(pinned(~Place{0}));
    EXPECT_TRUE(pinned(7));
}

TEST(Pins, ATableThatCouldBeCutIsRefused) {
    PinTable::Descriptors descriptors;
    descriptors.table = Fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(descriptors.table.get(), kFamilyBytes), 0);
    EXPECT_EQ(error_of([&] { const Pins pins(std::move(descriptors)); }), ErrorKind::protocol);
}

}  // namespace
}  // namespace ucxstore::test

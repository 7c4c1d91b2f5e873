// A server, a writer and a reader as processes of their own, on the plane of one host. One of them
// is killed: at its first step, at its second, and so on, until it has come to its end. The others
// neither crash nor hang, no value is torn, and nothing stays pinned.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>

#include "base/steps.hpp"
#include "client/allocation.hpp"
#include "client/local_client.hpp"
#include "loopback.hpp"
#include "server/local_thread.hpp"
#include "storage/directory.hpp"

namespace ucxstore {
namespace {

using namespace test;
using namespace std::chrono_literals;

enum Outcome : int { well = 0, lost = 10, torn = 11, leaked = 12, failed = 13 };

constexpr std::size_t kSizes[] = {10, 20'000, 3'000'000};
constexpr unsigned kRounds = 3;

// How often all is tried: each step in full runs, some of them else.
unsigned stride() { return std::getenv("UCXSTORE_FULL_TESTS") == nullptr ? 7 : 1; }

std::string key_of(std::size_t index) { return "key" + std::to_string(index); }

Bytes value_of(std::size_t index, unsigned round) {
    return Bytes(kSizes[index], static_cast<std::byte>(1 + round));
}

std::atomic<int> steps_left = 0;

void die_at(int number) {
    steps_left = number;
    on_step = [] {
        if (steps_left.fetch_sub(1) == 1) {
            kill(getpid(), SIGKILL);
        }
    };
}

struct Ends {
    Fd server;
    Fd client;
    wire::Token token = new_token();
};

Ends new_ends() {
    ControlPair pair = control_pair();
    return {std::move(pair.one), std::move(pair.other)};
}

// Runs `act` with a link, until the server is lost.
int as_client(Ends& ends, const std::function<int(LocalLink&)>& act) {
    ends.server.reset();
    LocalClient client;
    const auto link = client.attach(std::move(ends.client), ends.token, "server");
    try {
        return act(*link);
    } catch (const Error& error) {
        return error.kind() == ErrorKind::server_lost ? lost : failed;
    }
}

int write_all(LocalLink& link) {
    for (unsigned round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < std::size(kSizes); ++i) {
            Bytes value = value_of(i, round);
            auto operation = set_operation({{key_of(i), memory_of(value)}});
            std::optional<Allocation> memory;
            if (value.size() >= shared::kLeastInFile && round % 2 == 1) {
                memory.emplace(key_of(i), value.size());
                std::ranges::copy(value, memory->data());
                const Memory computed{memory->data(), Layout::contiguous(0, memory->size())};
                operation = set_operation({{key_of(i), computed}});
                operation->file = memory->seal();
            }
            link.submit(operation);
            finish(operation);
        }
    }
    return well;
}

// Reads each key so often, and borrows it, too; each value is one that was written, and none is
// older than the one before it.
int read_all(LocalLink& link) {
    std::byte newest[std::size(kSizes)] = {};
    for (int i = 0; i < 12; ++i) {
        const std::size_t index = static_cast<std::size_t>(i) % std::size(kSizes);
        const auto operation = get_operation({{key_of(index)}});
        operation->borrows = i % 2 == 1;
        link.submit(operation);
        finish(operation);
        if (operation->items[0].status == wire::Status::missing) {
            continue;
        }
        const auto& region = *operation->items[0].owned;
        const std::byte first = region.data()[0];
        const bool whole =
            region.size() == kSizes[index] &&
            std::all_of(region.data(), region.data() + region.size(),
                        [first](std::byte byte) { return byte == first; });
        if (!whole || first < newest[index] || first > static_cast<std::byte>(kRounds)) {
            return torn;
        }
        newest[index] = first;
    }
    return well;
}

enum class Place { memory, directory };

std::shared_ptr<Storage> storage_in(Place place, const TemporaryDirectory& directory) {
    if (place == Place::directory) {
        return std::make_shared<DirectoryStorage>(directory.path());
    }
    return std::make_shared<MemoryStorage>(std::make_shared<Quota>(1ull << 40), false,
                                           shared::Shelf::make());
}

// Serves both until `stop` ends, and says whether anything is left of them then.
int serve(const std::shared_ptr<Storage>& storage, Ends& writer, Ends& reader, const Fd& stop) {
    writer.client.reset();
    reader.client.reset();
    LocalThread thread(Service{Storages(storage), std::make_shared<Counters>()}, 0);
    thread.attach(std::move(writer.server), writer.token, "writer");
    thread.attach(std::move(reader.server), reader.token, "reader");
    char byte;
    static_cast<void>(!read(stop.get(), &byte, 1));
    if (!eventually([&] { return thread.sessions() == 0; })) {
        return leaked;
    }
    storage->remove_prefix("");
    const auto shelf = storage->shelf();
    if (shelf == nullptr) {
        return storage->list("", false, "", 1000).names.empty() ? well : leaked;
    }
    shelf->sweep();
    const ShelfCounts counts = shelf->counts();
    return counts.arena_bytes_waiting == 0 && counts.arena_bytes_used == 0 ? well : leaked;
}

enum class Who { server, writer, reader };

// The outcome of a process: its exit status, or the signal that has ended it, below 0.
int wait_for(pid_t pid) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > deadline) {
            kill(pid, SIGABRT);
            waitpid(pid, &status, 0);
            return -SIGABRT;
        }
        std::this_thread::sleep_for(1ms);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

pid_t start(const std::function<int()>& act) {
    const pid_t pid = fork();
    if (pid == 0) {
        // Not through the destructors of this process's own objects.
        _exit(act());
    }
    return pid;
}

// True once the victim has come to its end.
bool survives(Who victim, Place place, int step) {
    const TemporaryDirectory directory;
    Ends writer = new_ends();
    Ends reader = new_ends();
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    Fd stop(pipe_ends[0]);
    Fd hold(pipe_ends[1]);
    const auto begin = [&](Who who) {
        if (who == victim) {
            die_at(step);
        }
    };
    const pid_t server = start([&] {
        hold.reset();
        begin(Who::server);
        return serve(storage_in(place, directory), writer, reader, stop);
    });
    const pid_t writing = start([&] {
        hold.reset();
        reader = {};
        begin(Who::writer);
        return as_client(writer, write_all);
    });
    const pid_t reading = start([&] {
        hold.reset();
        writer = {};
        begin(Who::reader);
        return as_client(reader, read_all);
    });
    writer = {};
    reader = {};
    const int written = wait_for(writing);
    const int read = wait_for(reading);
    hold.reset();
    const int served = wait_for(server);
    const int ended = victim == Who::server ? served : victim == Who::writer ? written : read;
    EXPECT_TRUE(ended == -SIGKILL || ended == well) << "victim: " << ended;
    if (victim == Who::server) {
        EXPECT_TRUE(written == well || written == lost) << written;
        EXPECT_TRUE(read == well || read == lost) << read;
    } else {
        EXPECT_EQ(served, well);
        EXPECT_TRUE(victim == Who::writer || written == well) << written;
        EXPECT_TRUE(victim == Who::reader || read == well) << read;
    }
    return ended == well;
}

class Ending : public testing::TestWithParam<std::tuple<Who, Place>> {};

TEST_P(Ending, AtEachStepHarmsNobodyElse) {
    int step = 1;
    const auto [who, place] = GetParam();
    while (!survives(who, place, step)) {
        ASSERT_FALSE(HasFailure()) << "at step " << step;
        step += static_cast<int>(stride());
        ASSERT_LT(step, 5000);
    }
    EXPECT_GT(step, 20);
}

INSTANTIATE_TEST_SUITE_P(Each, Ending,
                         testing::Combine(testing::Values(Who::server, Who::writer, Who::reader),
                                          testing::Values(Place::memory, Place::directory)),
                         [](const auto& info) {
                             const Who who = std::get<0>(info.param);
                             const std::string name = who == Who::server   ? "Server"
                                                      : who == Who::writer ? "Writer"
                                                                           : "Reader";
                             return name + (std::get<1>(info.param) == Place::memory
                                                ? "OfMemory"
                                                : "OfADirectory");
                         });

}  // namespace
}  // namespace ucxstore

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
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "base/steps.hpp"
#include "cache/cache_shelf.hpp"
#include "local_client/allocation.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "objects.hpp"
#include "protocol/keys.hpp"
#include "storage/directory.hpp"
#include "storage/spaces.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

enum Outcome : int { well = 0, lost = 10, torn = 11, leaked = 12, failed = 13 };

constexpr std::size_t kValueBytes[] = {10, 20'000, 3'000'000};
constexpr unsigned kRounds = 3;

// How often all is tried: each step in full runs, some of them else. To fork is slow under
// ThreadSanitizer, and each process is looked at by itself there.
unsigned stride() {
#ifdef __SANITIZE_THREAD__
    return 40;
#else
    return std::getenv("UCXSTORE_FULL_TESTS") == nullptr ? 7 : 1;
#endif
}

// Where the values are kept.
enum class Where { memory, directory, synced_directory, cache, space };

bool is_directory(Where place) {
    return place == Where::directory || place == Where::synced_directory;
}

const std::string kSpace(kSpaceNameBytes, 'a');

std::string key_of(Where place, std::size_t index) {
    const std::string folder =
        place == Where::space ? std::string(kScratchFolder) + kSpace + "/" : "";
    return folder + "key" + std::to_string(index);
}

Bytes value_of(std::size_t index, unsigned round) {
    return Bytes(kValueBytes[index], static_cast<std::byte>(1 + round));
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
    Token token = new_token();
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
        if (error.kind() != ErrorKind::server_lost && error.kind() != ErrorKind::change_lost) {
            ADD_FAILURE() << error.what();
            return failed;
        }
        return lost;
    }
}

int write_all(LocalLink& link, Where place) {
    for (unsigned round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < std::size(kValueBytes); ++i) {
            const std::string key = key_of(place, i);
            Bytes value = value_of(i, round);
            auto operation = set_operation({{key, memory_of(value)}});
            std::optional<Allocation> memory;
            if (value.size() >= shared::kLeastInFile && round % 2 == 1) {
                memory.emplace(key, value.size());
                std::ranges::copy(value, memory->data());
                const Memory computed{memory->data(), Layout::contiguous(memory->size())};
                operation = set_operation({{key, computed}});
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
int read_all(LocalLink& link, Where place) {
    std::byte newest[std::size(kValueBytes)] = {};
    for (int i = 0; i < 12; ++i) {
        const std::size_t index = static_cast<std::size_t>(i) % std::size(kValueBytes);
        const auto operation = get_operation({{key_of(place, index)}});
        operation->borrows = i % 2 == 1;
        link.submit(operation);
        finish(operation);
        if (operation->items[0].status == Status::missing) {
            continue;
        }
        const auto& region = *operation->items[0].owned;
        const std::byte first = region.data()[0];
        const bool whole = region.size() == kValueBytes[index] &&
                           std::all_of(region.data(), region.data() + region.size(),
                                       [first](std::byte byte) { return byte == first; });
        if (!whole || first < newest[index] || first > static_cast<std::byte>(kRounds)) {
            return torn;
        }
        newest[index] = first;
    }
    return well;
}

// What a server serves, and what of it is left at the end.
class Served {
  public:
    Served(Where place, const TemporaryDirectory& directory) {
        const auto shown = [] {
            return std::make_shared<MemoryStorage>(std::make_shared<Quota>(kAny), false,
                                                   shared::Shelf::make());
        };
        if (place == Where::cache) {
            source_ = std::make_shared<CachedSource>(kCacheBytes, 0, CachedSource::kForEver,
                                                     CachedSource::kWriteBytes, Cache::Clock::now,
                                                     make_cache_shelf(kCacheBytes));
            objects_.emplace(source_);
            shelf_ = source_->shelf();
        } else if (is_directory(place)) {
            storage_ = std::make_shared<DirectoryStorage>(
                directory.path(), place == Where::directory ? Durability::none : Durability::fsync);
        } else {
            storage_ = shown();
            shelf_ = storage_->shelf();
        }
        if (place == Where::space) {
            spaces_ = std::make_shared<Spaces>(std::make_shared<Quota>(kAny), true);
            spaces_->begin(kSpace, kAny, 1h, Spaces::Clock::now());
            shelf_ = spaces_->find(kSpace)->shelf();
        }
    }

    Storages storages() const {
        return source_ != nullptr ? Storages(source_) : Storages(storage_, spaces_);
    }
    // Removes all values; whether nothing is left then.
    bool ends_clean() {
        if (source_ != nullptr) {
            std::atomic<bool> removed = false;
            source_->call(RemovePrefixCall{""}, [&](const auto&) { removed = true; });
            if (!eventually([&] { return removed.load(); })) {
                return false;
            }
        } else {
            const auto values = spaces_ == nullptr ? storage_ : spaces_->find(kSpace);
            remove_prefix(*values, "");
            if (!values->list("", false, "", 1000).names.empty()) {
                return false;
            }
        }
        if (shelf_ == nullptr) {
            return true;
        }
        shelf_->sweep();
        const ShelfCounts counts = shelf_->counts();
        return counts.arena_bytes_waiting == 0 && counts.arena_bytes_used == 0;
    }

  private:
    static constexpr std::uint64_t kAny = 1ull << 40;
    static constexpr std::uint64_t kCacheBytes = 64ull << 20;

    std::shared_ptr<CachedSource> source_;
    std::optional<Objects> objects_;
    std::shared_ptr<Storage> storage_;
    std::shared_ptr<Spaces> spaces_;
    std::shared_ptr<shared::Shelf> shelf_;
};

// Serves both until `stop` ends, and says whether anything is left of them then.
int serve(Served& served, Ends& writer, Ends& reader, const Fd& stop) {
    writer.client.reset();
    reader.client.reset();
    LocalThread thread(Service{served.storages(), std::make_shared<Counters>()}, 0);
    thread.attach(std::move(writer.server), writer.token, "writer");
    thread.attach(std::move(reader.server), reader.token, "reader");
    char byte;
    static_cast<void>(!read(stop.get(), &byte, 1));
    if (!eventually([&] { return thread.sessions() == 0; })) {
        return leaked;
    }
    return served.ends_clean() ? well : leaked;
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

// Whether each value that was left behind is one that was written.
bool all_whole(const TemporaryDirectory& directory) {
    DirectoryStorage left(directory.path());
    for (std::size_t i = 0; i < std::size(kValueBytes); ++i) {
        const auto value = left.find(key_of(Where::directory, i));
        if (value != nullptr) {
            const Bytes bytes = content_of(*value);
            const std::byte first = bytes.empty() ? std::byte{0} : bytes[0];
            if (bytes != Bytes(kValueBytes[i], first) || first == std::byte{0}) {
                return false;
            }
        }
    }
    return true;
}

// True once the victim has come to its end.
bool survives(Who victim, Where place, int step) {
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
        Served served(place, directory);
        return serve(served, writer, reader, stop);
    });
    const pid_t writing = start([&] {
        hold.reset();
        reader = {};
        begin(Who::writer);
        return as_client(writer, [&](LocalLink& link) { return write_all(link, place); });
    });
    const pid_t reading = start([&] {
        hold.reset();
        writer = {};
        begin(Who::reader);
        return as_client(reader, [&](LocalLink& link) { return read_all(link, place); });
    });
    writer = {};
    reader = {};
    const int written = wait_for(writing);
    const int read = wait_for(reading);
    hold.reset();
    const int served = wait_for(server);
    if (victim == Who::server && is_directory(place)) {
        EXPECT_TRUE(all_whole(directory));
    }
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

// Whether this process has a thread of ours: ThreadSanitizer does not follow forks of such.
bool has_threads() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
        if (name.starts_with("ucxstore")) {
            return true;
        }
    }
    return false;
}

class Ending : public testing::TestWithParam<std::tuple<Who, Where>> {
  protected:
    // One that trims the heap after other tests ends soon.
    void SetUp() override {
        ASSERT_TRUE(eventually([] { return !has_threads(); }));
    }
};

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

constexpr const char* kWho[] = {"Server", "Writer", "Reader"};
constexpr const char* kWhere[] = {"OfMemory", "OfADirectory", "OfASyncedDirectory", "OfACache",
                                  "OfAScratchSpace"};

INSTANTIATE_TEST_SUITE_P(Each, Ending,
                         testing::Combine(testing::Values(Who::server, Who::writer, Who::reader),
                                          testing::Values(Where::memory, Where::directory,
                                                          Where::synced_directory, Where::cache,
                                                          Where::space)),
                         [](const auto& info) {
                             return std::string(kWho[static_cast<int>(std::get<0>(info.param))]) +
                                    kWhere[static_cast<int>(std::get<1>(info.param))];
                         });

}  // namespace
}  // namespace ucxstore::test

// What is the directory's own: files that others see, and a root that keys cannot leave.
#include "storage/directory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <random>
#include <span>

#include "base/status.hpp"
#include "support.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public testing::Test {
  protected:
    void put(const std::string& key, const std::string& value) {
        const auto incoming = storage_.receive(key, value.size());
        const Bytes bytes = to_bytes(value);
        incoming->write(0, bytes);
        incoming->commit(false);
    }
    std::optional<std::string> get(const std::string& key) {
        const auto region = storage_.find(key);
        if (region == nullptr) {
            return std::nullopt;
        }
        return std::string(reinterpret_cast<const char*>(region->data()), region->size());
    }
    void write_file(const fs::path& path, const std::string& text) {
        fs::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    std::string read_file(const fs::path& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::vector<std::string> names(const std::string& prefix = "", bool delimited = false) {
        return storage_.list(prefix, delimited, "", 1'000'000).names;
    }

    TemporaryDirectory directory_;
    const fs::path root_ = directory_.path() / "made" / "root";
    const fs::path outside_ = directory_.path() / "outside";
    DirectoryStorage storage_{root_};
};

TEST_F(DirectoryTest, AValueIsAFileUnderItsKey) {
    put("c/0/1", "value");
    EXPECT_EQ(read_file(root_ / "c/0/1"), "value");
    write_file(root_ / "zarr.json", "{}");
    EXPECT_EQ(get("zarr.json"), "{}");
    EXPECT_EQ(names(), (std::vector<std::string>{"c/0/1", "zarr.json"}));
}

TEST_F(DirectoryTest, TheVersionOfANewFileIsInDoubt) {
    put("key", "value");
    EXPECT_TRUE(storage_.find("key")->version_in_doubt());
    EXPECT_TRUE(eventually([&] { return !storage_.find("key")->version_in_doubt(); }));
    write_file(root_ / "key", "other");
    EXPECT_TRUE(storage_.find("key")->version_in_doubt());
}

TEST_F(DirectoryTest, AValueGetsNoKeyOnceItsMandateHasEnded) {
    const auto ended = std::make_shared<const Mandate>(
        "origin", [] { throw Error(ErrorKind::denied, "has expired"); });
    put("key", "old");
    DirectoryStorage storage(root_, Durability::atomic);
    for (const std::string key : {"key", "new"}) {
        const std::shared_ptr<Incoming> incoming = storage.receive(key, 0);
        std::atomic<bool> told = false;
        std::string failure;
        incoming->commit_later(
            false, {},
            [&, incoming](bool, std::string why) {
                failure = std::move(why);
                told = true;
            },
            ended);
        EXPECT_TRUE(eventually([&] { return told.load(); }));
        EXPECT_EQ(failure, "has expired");
    }
    EXPECT_EQ(get("key"), "old");
    EXPECT_EQ(get("new"), std::nullopt);
}

TEST_F(DirectoryTest, TheRootMustBeADirectory) {
    write_file(directory_.path() / "file", "");
    EXPECT_EQ(error_of([&] { DirectoryStorage(directory_.path() / "file"); }), ErrorKind::storage);
    EXPECT_EQ(error_of([&] { DirectoryStorage(directory_.path() / "file/x"); }),
              ErrorKind::storage);
}

TEST_F(DirectoryTest, RemovingPrunesEmptyDirectoriesButNotTheRoot) {
    put("a/b/c", "1");
    put("a/d", "2");
    storage_.remove("a/b/c");
    EXPECT_FALSE(fs::exists(root_ / "a/b"));
    EXPECT_TRUE(fs::exists(root_ / "a/d"));
    storage_.remove("a/d");
    EXPECT_TRUE(fs::exists(root_));
    EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(DirectoryTest, AFileInTheWayIsAnError) {
    put("a", "1");
    EXPECT_EQ(error_of([&] { put("a/b", "2"); }), ErrorKind::storage);
    EXPECT_EQ(get("a/b"), std::nullopt);
    put("d/k", "3");
    EXPECT_EQ(error_of([&] { put("d", "4"); }), ErrorKind::storage);
    EXPECT_EQ(get("d/k"), "3");
    EXPECT_EQ(get("a"), "1");
}

TEST_F(DirectoryTest, NoKeyLeavesTheRoot) {
    write_file(outside_ / "secret", "secret");
    for (const std::string key :
         {"../outside/secret", "../../outside/secret", "a/../../../outside/secret"}) {
        EXPECT_EQ(error_of([&] { get(key); }).value_or(ErrorKind::storage), ErrorKind::storage);
        EXPECT_NE(error_of([&] { put(key, "mine"); }), std::nullopt) << key;
        static_cast<void>(error_of([&] { storage_.remove(key); }));
    }
    EXPECT_EQ(error_of([&] { get(outside_ / "secret"); }), ErrorKind::storage);
    EXPECT_EQ(read_file(outside_ / "secret"), "secret");
}

TEST_F(DirectoryTest, NoPrefixLeavesTheRoot) {
    write_file(directory_.path() / "outside/secret", "secret");
    for (const std::string prefix : {"../../outside/", "../", "/", "a/../../../"}) {
        static_cast<void>(error_of([&] { EXPECT_TRUE(names(prefix).empty()); }));
        static_cast<void>(error_of([&] { EXPECT_TRUE(names(prefix, true).empty()); }));
        static_cast<void>(error_of([&] { remove_prefix(storage_, prefix); }));
    }
    EXPECT_EQ(read_file(outside_ / "secret"), "secret");
}

TEST_F(DirectoryTest, NoLinkLeavesTheRoot) {
    write_file(outside_ / "secret", "secret");
    fs::create_directory_symlink(outside_, root_ / "linked");
    fs::create_symlink(outside_ / "secret", root_ / "secret");
    fs::create_symlink("../../outside/secret", root_ / "relative");
    for (const std::string key : {"linked/secret", "secret", "relative"}) {
        EXPECT_EQ(error_of([&] { get(key); }), ErrorKind::storage) << key;
        EXPECT_EQ(error_of([&] { static_cast<void>(storage_.size(key)); }), ErrorKind::storage);
    }
    EXPECT_EQ(error_of([&] { put("linked/new", "1"); }), ErrorKind::storage);
    EXPECT_EQ(error_of([&] { storage_.remove("linked/secret"); }), ErrorKind::storage);
    remove_prefix(storage_, "");
    EXPECT_EQ(read_file(outside_ / "secret"), "secret");
    EXPECT_FALSE(fs::exists(outside_ / "new"));
}

TEST_F(DirectoryTest, WritingOverALinkReplacesTheLink) {
    write_file(outside_ / "secret", "secret");
    fs::create_symlink(outside_ / "secret", root_ / "k");
    put("k", "mine");
    EXPECT_EQ(get("k"), "mine");
    EXPECT_EQ(read_file(outside_ / "secret"), "secret");
}

TEST_F(DirectoryTest, ALinkThatLeavesTheRootIsNoKeyInAListing) {
    write_file(outside_ / "secret", "secret");
    fs::create_symlink(outside_ / "secret", root_ / "linked");
    put("k", "12");
    EXPECT_EQ(names(), std::vector<std::string>{"k"});
    EXPECT_EQ(names("", true), std::vector<std::string>{"k"});
    EXPECT_EQ(measure(storage_, "", false).bytes, 2u);
}

TEST_F(DirectoryTest, ALinkInsideTheRootIsAKey) {
    put("d/k", "value");
    fs::create_symlink("d/k", root_ / "linked");
    EXPECT_EQ(get("linked"), "value");
    EXPECT_EQ(names(), (std::vector<std::string>{"d/k", "linked"}));
}

TEST_F(DirectoryTest, ACycleOfLinksEnds) {
    fs::create_symlink("b", root_ / "a");
    fs::create_symlink("a", root_ / "b");
    fs::create_directory_symlink(".", root_ / "self");
    put("k", "1");
    EXPECT_EQ(names(), std::vector<std::string>{"k"});
    EXPECT_EQ(error_of([&] { get("a"); }).value_or(ErrorKind::storage), ErrorKind::storage);
}

TEST_F(DirectoryTest, WhatIsNoRegularFileIsNoKey) {
    put("d/k", "1");
    ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = root_ / "socket";
    ASSERT_LT(path.size(), sizeof(address.sun_path));
    path.copy(address.sun_path, path.size());
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(listener);
    for (const std::string key : {"fifo", "socket", "d"}) {
        EXPECT_EQ(get(key), std::nullopt) << key;
        EXPECT_EQ(storage_.size(key), std::nullopt) << key;
        storage_.remove(key);
    }
    EXPECT_EQ(names(), std::vector<std::string>{"d/k"});
    EXPECT_TRUE(fs::exists(root_ / "fifo")) << "what is no key cannot be removed as one";
}

TEST_F(DirectoryTest, UnfinishedFilesAreHidden) {
    write_file(root_ / "d/.ucxstore-0123456789abcdef.partial", "half");
    put("d/k", "1");
    EXPECT_EQ(names(), std::vector<std::string>{"d/k"});
    EXPECT_EQ(names("d/", true), std::vector<std::string>{"k"});
    EXPECT_EQ(measure(storage_, "", false).keys, 1u);
}

TEST_F(DirectoryTest, FilesOfTheServersOwnAreNoKeys) {
    for (const std::string name : {".ucxstore-0123456789abcdef.partial", ".ucxstore-cluster"}) {
        write_file(root_ / name, "own");
        EXPECT_EQ(get(name), std::nullopt);
        EXPECT_EQ(storage_.size(name), std::nullopt);
        EXPECT_EQ(error_of([&] { storage_.receive(name, 1); }), ErrorKind::storage);
        storage_.remove(name);
    }
    put("k", "1");
    EXPECT_EQ(names(), std::vector<std::string>{"k"});
    EXPECT_EQ(names("", true), std::vector<std::string>{"k"});
    EXPECT_EQ(measure(storage_, "", false).keys, 1u);
    EXPECT_EQ(remove_prefix(storage_, ""), 1u);
    for (const std::string name : {".ucxstore-0123456789abcdef.partial", ".ucxstore-cluster"}) {
        EXPECT_TRUE(fs::exists(root_ / name));
    }
}

TEST_F(DirectoryTest, AWriteLeavesNoFileButItsOwn) {
    put("k", "1");
    put("k", "2");
    EXPECT_FALSE(storage_.receive("k", 10)->commit(true));
    EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1);
}

// UCX hands a value over in fragments, of several values at once, and over several lanes in any
// order.
TEST_F(DirectoryTest, AValueComesInAnyFragments) {
    constexpr std::size_t kBuffer = 2 << 20;
    std::mt19937 random(7);
    struct Coming {
        std::string key;
        Bytes value;
        std::unique_ptr<Incoming> incoming;
        std::vector<std::pair<std::size_t, std::size_t>> fragments;  // offset and length
    };
    for (const bool in_order : {true, false}) {
        std::vector<Coming> values;
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{100'000}, kBuffer - 1,
              kBuffer, kBuffer + 1, 2 * kBuffer, 3 * kBuffer + 5000, kBuffer + 60'000,
              std::size_t{1'000'000}, std::size_t{1'500'000}}) {
            Coming one{"k" + std::to_string(size), pattern(size, in_order), nullptr, {}};
            one.incoming = storage_.receive(one.key, size);
            for (std::size_t at = 0; at < size;) {
                const std::size_t most = random() % 20 == 0 ? 3 * kBuffer : 61'000;
                const std::size_t length = std::min(size - at, 1 + random() % most);
                one.fragments.emplace_back(at, length);
                at += length;
            }
            if (!in_order) {
                std::ranges::shuffle(one.fragments, random);
            }
            std::ranges::reverse(one.fragments);  // taken from the back
            values.push_back(std::move(one));
        }
        while (std::ranges::any_of(values, [](auto& one) { return !one.fragments.empty(); })) {
            Coming& one = values[random() % values.size()];
            for (int i = 0; i < 5 && !one.fragments.empty(); ++i) {
                const auto [offset, length] = one.fragments.back();
                one.fragments.pop_back();
                one.incoming->write(offset, std::span(one.value).subspan(offset, length));
            }
        }
        for (Coming& one : values) {
            EXPECT_TRUE(one.incoming->commit(false));
            const auto region = storage_.find(one.key);
            ASSERT_NE(region, nullptr);
            EXPECT_EQ(content_of(*region), one.value) << one.key;
        }
    }
}

TEST_F(DirectoryTest, AWriteThatFailsLeavesTheOldValue) {
    signal(SIGXFSZ, SIG_IGN);  // as Python does
    put("d/k", "old");
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (const std::size_t size : {20'000u, 1'000'000u, 5'000'000u}) {
        auto incoming = storage_.receive("d/k", size);
        auto other = storage_.receive("new/k", size);
        const Bytes value = pattern(size);
        const rlimit small{.rlim_cur = 10'000, .rlim_max = before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        for (std::size_t at = 0; at < size; at += 50'000) {
            const auto fragment = std::span(value).subspan(at, std::min(size - at, 50'000ul));
            incoming->write(at, fragment);
            other->write(at, fragment);
        }
        EXPECT_EQ(error_of([&] { incoming->commit(false); }), ErrorKind::storage);
        EXPECT_EQ(error_of([&] { other->commit(true); }), ErrorKind::storage);
        incoming.reset();
        other.reset();
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        EXPECT_EQ(get("d/k"), "old");
        EXPECT_EQ(names(), std::vector<std::string>{"d/k"});
        EXPECT_FALSE(fs::exists(root_ / "new"));
    }
}

// Files that are replaced or removed are freed on another thread: no name and no room may stay
// behind, nor a descriptor.
TEST_F(DirectoryTest, WhatWasReplacedOrRemovedIsFreed) {
    const auto unnamed = [] {
        std::ptrdiff_t count = 0;
        for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            count += fs::read_symlink(entry.path(), gone).string().ends_with(" (deleted)");
        }
        return count;
    };
    const auto before = unnamed();
    for (int round = 0; round < 3; ++round) {
        for (int key = 0; key < 200; ++key) {
            put("d/" + std::to_string(key), std::string(10'000, static_cast<char>('a' + round)));
        }
    }
    EXPECT_EQ(get("d/7"), std::string(10'000, 'c'));
    const auto pinned = storage_.find("d/8");
    EXPECT_EQ(remove_prefix(storage_, "d/"), 200u);
    EXPECT_EQ(static_cast<char>(pinned->data()[9'999]), 'c');
    EXPECT_TRUE(eventually([&] { return unnamed() <= before; }));
    EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(DirectoryTest, AForkedChildEndsWithoutTheThreadThatFrees) {
    auto storage = std::make_unique<DirectoryStorage>(root_);
    storage->receive("k", 0)->commit(false);
    storage->receive("k", 0)->commit(false);  // now it has a thread
    const pid_t child = fork();
    if (child == 0) {
        storage.reset();
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(DirectoryTest, ANameTooLongForTheFileSystemIsNoKeyThere) {
    const std::string name(300, 'n');
    EXPECT_EQ(get(name), std::nullopt);
    EXPECT_EQ(get("d/" + name), std::nullopt);
    EXPECT_NO_THROW(storage_.remove(name));
    EXPECT_EQ(error_of([&] { put("new/" + name, "1"); }), ErrorKind::storage);
    EXPECT_EQ(error_of([&] { put("new/" + name + "/k", "1"); }), ErrorKind::storage);
    EXPECT_TRUE(fs::is_empty(root_)) << "directories of a failed write stay behind";
}

TEST_F(DirectoryTest, NamesThatAreNoTextAreNotListed) {
    write_file(root_ / "caf\xe9", "");  // Latin-1, which no client could name
    put("k", "1");
    EXPECT_EQ(names(), std::vector<std::string>{"k"});
}

TEST_F(DirectoryTest, GivingUpSurvivesAParentThatNowLeadsAway) {
    auto incoming = storage_.receive("d/k", 10);
    fs::create_directories(outside_);
    fs::rename(root_ / "d", directory_.path() / "moved");
    fs::create_directory_symlink(outside_, root_ / "d");
    incoming.reset();  // a throw in here would end the server
    EXPECT_TRUE(fs::exists(outside_));
}

TEST_F(DirectoryTest, GivingUpSurvivesARunOutOfDescriptors) {
    // UBSan needs descriptors of its own where it sees a class for the first time.
    storage_.receive("d/e/k", 10).reset();
    EXPECT_THROW(throw_errno("no descriptors"), Error);
    auto incoming = storage_.receive("d/e/k", 10);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_THROW(storage_.receive("e/k", 10), Error);
    incoming.reset();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(DirectoryTest, AFileCutShortWhileItIsReadIsAnErrorOrWhole) {
    put("k", std::string(1000, 'x'));
    const auto region = storage_.find("k");
    fs::resize_file(root_ / "k", 0);
    EXPECT_EQ(region->size(), 1000u);
    EXPECT_EQ(static_cast<char>(region->data()[999]), 'x');
    put("large", std::string(3'000'000, 'y'));
    const auto large = storage_.find("large");
    fs::resize_file(root_ / "large", 2'999'999);
    EXPECT_EQ(error_of([&] { content_of(*large); }), ErrorKind::storage);
    std::vector<ucp_dt_iov_t> begin{{large->data(), 2'000'000}};
    const auto owner = large->locate(begin);
    EXPECT_EQ(static_cast<const char*>(begin[0].buffer)[1'999'999], 'y');
}

// Runs of any length, gap and order are read as they lie.
TEST_F(DirectoryTest, PartsOfALargeFileAreRead) {
    const Bytes value = pattern(5'000'000);
    const auto incoming = storage_.receive("k", value.size());
    incoming->write(0, value);
    incoming->commit(false);
    const auto region = storage_.find("k");
    std::mt19937 random(7);
    for (const std::size_t most_run : {1u, 100u, 5'000u, 300'000u}) {
        for (const std::size_t most_gap : {0u, 10u, 5'000u, 100'000u}) {
            std::vector<ucp_dt_iov_t> runs;
            Bytes expected;
            for (std::size_t at = 0; runs.size() < 500;) {
                const std::size_t length = 1 + random() % most_run;
                if (at + length > value.size()) {
                    break;
                }
                runs.push_back({region->data() + at, length});
                at += length + (most_gap == 0 ? 0 : random() % most_gap);
            }
            if (most_gap == 10) {
                std::ranges::shuffle(runs, random);
            }
            for (const ucp_dt_iov_t& run : runs) {
                const auto at = static_cast<std::byte*>(run.buffer) - region->data();
                const auto bytes =
                    std::span(value).subspan(static_cast<std::size_t>(at), run.length);
                expected.insert(expected.end(), bytes.begin(), bytes.end());
            }
            const auto owner = region->locate(runs);
            ASSERT_EQ(runs.size(), 1u);
            const auto* const begin = static_cast<const std::byte*>(runs[0].buffer);
            EXPECT_EQ(Bytes(begin, begin + runs[0].length), expected);
        }
    }
}

}  // namespace
}  // namespace ucxstore::test

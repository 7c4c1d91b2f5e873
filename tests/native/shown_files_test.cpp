// A directory on the plane of one host: clients read its files themselves, as the server would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "client/batch.hpp"
#include "files/mapped_file.hpp"
#include "local/same_rights.hpp"
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "protocol/keys.hpp"
#include "storage/directory.hpp"

namespace ucxstore::test {
namespace {

// Memory with so much room.
client::Link::MakeRoom in(std::byte* out, std::uint64_t room) {
    return [=](std::uint64_t size) { return size <= room ? out : nullptr; };
}

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::size_t kSizes[] = {0,       1,         4096,      65'536,    65'537,
                                  100'000, 1'048'576, 2'097'153, 40'000'000};

std::size_t open_descriptors() {
    const fs::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class ShownFiles : public testing::Test {
  protected:
    ShownFiles() { link = connect(); }

    // A client that has been shown the directory: the server's message has come before its reply.
    std::shared_ptr<LocalLink> connect() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        auto made = client.attach(std::move(pair.other), token, "server");
        run(*made, call_operation(Op::ping, ""));
        return made;
    }
    void run(const std::shared_ptr<Operation>& operation) { run(*link, operation); }
    void run(LocalLink& with, const std::shared_ptr<Operation>& operation) {
        with.submit(operation);
        finish(operation);
    }
    void set(const std::string& key, const Bytes& value) {
        Bytes copy = value;
        run(set_operation({{key, memory_of(copy)}}));
    }
    std::optional<Bytes> get(const std::string& key, Selection selection = {}) {
        const auto operation = get_operation({{key, std::move(selection)}});
        run(operation);
        if (operation->items[0].status == Status::missing) {
            return std::nullopt;
        }
        return reply_of(*operation);
    }
    void write_file(const std::string& key, const Bytes& value) {
        fs::create_directories((root / key).parent_path());
        std::ofstream(root / key, std::ios::binary)
            .write(reinterpret_cast<const char*>(value.data()),
                   static_cast<std::streamsize>(value.size()));
    }
    // How many gets the server has answered.
    std::uint64_t asked() const { return counters->gets; }

    const TemporaryDirectory directory;
    const fs::path root = directory.path() / "root";
    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    const Service service{
        Storages(std::shared_ptr<Storage>(std::make_shared<DirectoryStorage>(root))), counters};
    LocalThread server{service, 0};
    LocalClient client;
    std::shared_ptr<LocalLink> link;
};

TEST_F(ShownFiles, ValuesOfEverySizeAreReadWithoutTheServer) {
    for (const std::size_t size : kSizes) {
        const Bytes value = pattern(size);
        set("a/key", value);
        EXPECT_EQ(get("a/key"), value) << size;
        Bytes out(size + 10);
        const auto operation = get_operation({{.key = "a/key", .memory = memory_of(out)}});
        run(operation);
        EXPECT_EQ(operation->items[0].size, size);
        EXPECT_TRUE(std::equal(value.begin(), value.end(), out.begin())) << size;
    }
    EXPECT_EQ(asked(), 0u);
}

TEST_F(ShownFiles, WhatIsReadIsCounted) {
    set("a", pattern(1000));
    for (int i = 0; i < 5; ++i) {
        get("a");
    }
    const auto other = connect();
    run(*other, get_operation({{"a"}}));
    other->close();
    EXPECT_TRUE(eventually([&] { return server.sessions() == 1; }));
    connect();
    const ShelfCounts counts = service.storages.shown_counts();
    EXPECT_EQ(counts.gets_seen, 6u);
    EXPECT_EQ(counts.bytes_seen, 6000u);
}

TEST_F(ShownFiles, WithoutTheDirectoryValuesAreSent) {
    set("a", pattern(3'000'000));
    const Fd null(open("/dev/null", O_RDONLY));
    EXPECT_FALSE(local::has_our_rights(null.get()));
    // Over TCP there is nobody to know.
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_FALSE(local::has_our_rights(socket.get()));
    const ControlPair pair = control_pair();
    EXPECT_TRUE(local::has_our_rights(pair.one.get()));
}

TEST_F(ShownFiles, WhatOthersWriteIsSeen) {
    write_file("a/b", pattern(100));
    EXPECT_EQ(get("a/b"), pattern(100));
    const auto other = connect();
    for (int i = 0; i < 50; ++i) {
        Bytes value = pattern(static_cast<std::size_t>(1 + 997 * i));
        run(*other, set_operation({{"a/b", memory_of(value)}}));
        ASSERT_EQ(get("a/b"), value);
    }
    run(make_calls(Op::remove, {"a/b"}, 60, nullptr));
    EXPECT_EQ(get("a/b"), std::nullopt);
    EXPECT_EQ(asked(), 0u);
}

TEST_F(ShownFiles, AbsentKeysAreMissing) {
    set("a/b", pattern(10));
    ASSERT_EQ(mkfifo((root / "fifo").c_str(), 0600), 0);
    for (const std::string key : {"none", "a", "a/c", "x/y/z", "fifo"}) {
        EXPECT_EQ(get(key), std::nullopt) << key;
    }
    EXPECT_EQ(asked(), 0u);
    // What is no file, but in the place of a folder: as the server says.
    EXPECT_EQ(get("a/b/c"), std::nullopt);
    EXPECT_EQ(get(std::string(300, 'n')), std::nullopt);
}

TEST_F(ShownFiles, ARemovedRootIsAnErrorAndNotEmpty) {
    set("a", pattern(10));
    ASSERT_EQ(get("a"), pattern(10));
    fs::remove_all(root);
    EXPECT_EQ(error_of([&] { get("a"); }), ErrorKind::storage);
}

TEST_F(ShownFiles, KeysDoNotLeaveTheRoot) {
    fs::create_directories(directory.path() / "outside");
    std::ofstream(directory.path() / "outside/secret") << "secret";
    fs::create_directory_symlink(directory.path() / "outside", root / "linked");
    fs::create_symlink("../outside/secret", root / "relative");
    fs::create_symlink("/proc/self/cmdline", root / "magic");
    for (const std::string key : {"linked/secret", "relative", "magic"}) {
        EXPECT_EQ(error_of([&] { get(key); }), ErrorKind::storage) << key;
        std::byte out[100];
        EXPECT_EQ(link->see(key, in(out, sizeof(out))), std::nullopt) << key;
    }
    std::byte out[100];
    const std::string hidden = std::string("linked\0/x", 9);
    for (const std::string& key :
         {std::string("../outside/secret"), std::string("/etc/passwd"), std::string("a/../../x"),
          std::string(""), hidden, std::string(5000, 'x')}) {
        EXPECT_EQ(link->see(key, in(out, sizeof(out))), std::nullopt) << key;
        EXPECT_EQ(error_of([&] { get(key); }), ErrorKind::invalid_key) << key;
    }
    // A link that stays inside is a key.
    set("a/b", pattern(10));
    fs::create_symlink("a/b", root / "inside");
    EXPECT_EQ(get("inside"), pattern(10));
}

TEST_F(ShownFiles, OurOwnFilesAreNotThere) {
    const std::string unfinished = "a/.ucxstore-0123456789abcdef.partial";
    const std::string cluster = ".ucxstore-cluster";
    write_file(unfinished, pattern(10));
    write_file(cluster, pattern(10));
    const std::string space =
        std::string(kScratchFolder) + std::string(kSpaceNameBytes, 'a') + "/x";
    write_file(space, pattern(10));
    std::byte out[100];
    for (const std::string& key : {unfinished, cluster, space}) {
        EXPECT_EQ(link->see(key, in(out, sizeof(out))), std::nullopt) << key;
    }
    EXPECT_EQ(get(unfinished), std::nullopt);
    EXPECT_EQ(get(cluster), std::nullopt);
    EXPECT_EQ(error_of([&] { get(space); }), ErrorKind::storage);
}

TEST_F(ShownFiles, SeeReadsIntoMemory) {
    set("a", pattern(5000));
    Bytes out(6000);
    EXPECT_EQ(link->see("a", in(out.data(), out.size())), 5000u);
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + 5000, pattern(5000).begin()));
    EXPECT_EQ(link->see("a", in(out.data(), 4999)), std::nullopt);
    EXPECT_EQ(link->see("none", in(out.data(), out.size())), std::nullopt);
}

TEST_F(ShownFiles, VersionsAreTheServers) {
    set("a", pattern(5000));
    const auto version = [&](LocalLink& with) {
        const auto operation = get_operation({{"a"}});
        run(with, operation);
        return operation->items[0].version;
    };
    const std::uint64_t seen = version(*link);
    const DirectoryStorage storage(root);
    EXPECT_EQ(seen, const_cast<DirectoryStorage&>(storage).find("a")->version());
    const auto same = get_operation({{.key = "a", .version = seen}});
    run(same);
    EXPECT_EQ(same->items[0].status, Status::ok);
    set("a", pattern(5000));
    const auto changed = get_operation({{.key = "a", .version = seen}});
    run(changed);
    EXPECT_EQ(changed->items[0].status, Status::changed);
    EXPECT_NE(changed->items[0].version, seen);
}

TEST_F(ShownFiles, RefusalsAreTheServersOwn) {
    set("key", pattern(1000));
    Bytes small(10);
    const auto error = [&](Get one) {
        return error_of([&] { run(get_operation({std::move(one)})); });
    };
    EXPECT_EQ(error({.key = "key", .memory = memory_of(small)}), ErrorKind::value_too_large);
    EXPECT_EQ(error({.key = "key", .expected = 999}), ErrorKind::chunk_size);
    EXPECT_EQ(error({.key = "key", .selection = Layout::contiguous(10, 995)}), ErrorKind::argument);
    EXPECT_EQ(asked(), 0u);
}

TEST_F(ShownFiles, SmallAndLargeAndAbsentAreOneOperation) {
    set("small", pattern(100));
    set("large", pattern(9'000'000, 3));
    for (int i = 0; i < 10; ++i) {
        const auto operation =
            get_operation({{"small"}, {"large"}, {"none"}, {"small"}, {"large"}});
        run(operation);
        EXPECT_EQ(reply_of(*operation, 0), pattern(100));
        EXPECT_EQ(reply_of(*operation, 1), pattern(9'000'000, 3));
        EXPECT_EQ(operation->items[2].status, Status::missing);
        EXPECT_EQ(reply_of(*operation, 4), pattern(9'000'000, 3));
    }
    EXPECT_EQ(asked(), 0u);
}

TEST_F(ShownFiles, AMixtureOfReadAndRefusedIsOneOperation) {
    set("large", pattern(9'000'000));
    fs::create_symlink("/etc/passwd", root / "bad");
    Bytes out(9'000'000);
    const auto operation = get_operation({{"bad"}, {.key = "large", .memory = memory_of(out)}});
    EXPECT_EQ(error_of([&] { run(operation); }), ErrorKind::storage);
    EXPECT_EQ(get("large"), pattern(9'000'000));
}

// A box that the file has in another order, of more runs than are read one by one.
TEST_F(ShownFiles, WhatWouldBeManyReadsIsSent) {
    const Bytes value = pattern(1'000'000);
    set("key", value);
    const std::vector<Dim> across = {{1000, 1}, {1000, 1000}};
    Bytes expected(value.size());
    Layout::strided(0, 1, across).pack(value.data(), expected.data());
    EXPECT_EQ(get("key", Layout::strided(0, 1, across)), expected);
    EXPECT_EQ(asked(), 1u);
}

TEST_F(ShownFiles, NothingIsReadOnceTheServerHasEndedTheSession) {
    set("key", pattern(1000));
    ASSERT_EQ(get("key"), pattern(1000));
    server.close();
    std::byte out[2000];
    EXPECT_EQ(link->see("key", in(out, sizeof(out))), std::nullopt);
    EXPECT_EQ(error_of([&] { get("key"); }), ErrorKind::server_lost);
}

TEST_F(ShownFiles, NoTornValueIsRead) {
    static constexpr std::size_t kLengths[] = {64, 70'000, 600'000, 5'000'000};
    std::atomic<bool> stop = false;
    const auto value_of = [](unsigned round) {
        return Bytes(kLengths[round % 4], static_cast<std::byte>(round));
    };
    set("key", value_of(0));
    std::vector<std::thread> readers;
    std::atomic<std::uint64_t> reads = 0;
    std::atomic<std::uint64_t> torn = 0;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            const auto mine = connect();
            while (!stop) {
                const auto operation = get_operation({{"key"}});
                run(*mine, operation);
                const Bytes value = reply_of(*operation);
                ++reads;
                const bool whole =
                    std::ranges::all_of(value, [&](auto b) { return b == value[0]; });
                torn += !whole || value.size() != kLengths[static_cast<unsigned>(value[0]) % 4];
            }
        });
    }
    for (unsigned round = 1; round < 250; ++round) {
        set("key", value_of(round));
    }
    stop = true;
    for (auto& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(torn, 0u);
    EXPECT_GT(reads, 10u);
}

// A third party cuts a file, and lets it grow again: what is read may be either, but nobody falls.
TEST_F(ShownFiles, AFileThatIsCutMeanwhileHarmsNobody) {
    const Bytes value = pattern(20'000'000);
    write_file("key", value);
    std::atomic<bool> stop = false;
    std::thread cutter([&] {
        while (!stop) {
            EXPECT_EQ(truncate((root / "key").c_str(), 5'000'000), 0);
            EXPECT_EQ(truncate((root / "key").c_str(), 20'000'000), 0);
        }
    });
    for (int i = 0; i < 60; ++i) {
        Bytes out(20'000'000);
        const auto operation = get_operation({{.key = "key", .memory = memory_of(out)}});
        const auto failure = error_of([&] { run(operation); });
        if (failure == ErrorKind::server_lost) {
            link = connect();  // the server has sent of a mapping that was cut
        } else if (failure) {
            EXPECT_EQ(failure, ErrorKind::storage);
        } else {
            EXPECT_TRUE(operation->items[0].size == 5'000'000 ||
                        operation->items[0].size == 20'000'000);
            EXPECT_TRUE(std::equal(out.begin(), out.begin() + 5'000'000, value.begin()));
        }
    }
    stop = true;
    cutter.join();
    ASSERT_EQ(truncate((root / "key").c_str(), 5'000'000), 0);
    EXPECT_EQ(get("key")->size(), 5'000'000u);
}

TEST_F(ShownFiles, ACancelledReadLetsGoOfItsMemory) {
    set("key", pattern(40'000'000));
    for (int i = 0; i < 40; ++i) {
        auto out = std::make_unique<Bytes>(40'000'000);
        const auto operation = get_operation({{.key = "key", .memory = memory_of(*out)}});
        link->submit(operation);
        std::this_thread::sleep_for(std::chrono::microseconds(97 * i));
        link->cancel(operation);
        ASSERT_TRUE(operation->wait_for(kPatience));
        EXPECT_FALSE(operation->leaked());
        out.reset();
    }
    EXPECT_EQ(get("key"), pattern(40'000'000));
}

TEST_F(ShownFiles, AClosedClientLetsGoOfItsMemory) {
    set("key", pattern(40'000'000));
    for (int i = 0; i < 10; ++i) {
        LocalClient other;
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        const auto mine = other.attach(std::move(pair.other), token, "server");
        run(*mine, call_operation(Op::ping, ""));
        auto out = std::make_unique<Bytes>(40'000'000);
        const auto operation = get_operation({{.key = "key", .memory = memory_of(*out)}});
        mine->submit(operation);
        std::this_thread::sleep_for(std::chrono::microseconds(397 * i));
        other.close();
        ASSERT_TRUE(operation->wait_for(0ms));
        EXPECT_FALSE(operation->leaked());
        out.reset();
    }
}

TEST_F(ShownFiles, NoDescriptorStaysOpen) {
    set("small", pattern(100));
    set("large", pattern(5'000'000));
    get("large");
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 200; ++i) {
        get("small");
        get("none");
        if (i % 20 == 0) {
            get("large");
        }
    }
    EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
    for (int i = 0; i < 20; ++i) {
        auto other = connect();
        run(*other, get_operation({{"small"}}));
        other->close();
    }
    EXPECT_TRUE(eventually([&] { return server.sessions() == 1; }));
    EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
}

TEST_F(ShownFiles, FewFilesAreOpenAtOnce) {
    std::vector<Get> gets;
    for (int i = 0; i < 300; ++i) {
        const std::string key = "c/" + std::to_string(i);
        write_file(key, pattern(5'000, static_cast<unsigned>(i)));
        gets.push_back({key});
    }
    const std::size_t before = open_descriptors();
    std::atomic<bool> stop = false;
    std::size_t most = 0;
    std::thread watcher([&] {
        while (!stop) {
            most = std::max(most, open_descriptors());
        }
    });
    for (int i = 0; i < 10; ++i) {
        const auto operation = get_operation(gets);
        run(operation);
        for (std::size_t k = 0; k < gets.size(); ++k) {
            ASSERT_EQ(reply_of(*operation, k), pattern(5'000, static_cast<unsigned>(k)));
        }
    }
    stop = true;
    watcher.join();
    EXPECT_LT(most, before + 30);
}

// ---- a disk that does not answer ----

// A link of its own, whose pool is kept busy.
class StuckDisk : public ShownFiles {
  protected:
    class Driver final : public TaskThread::Driver {
      public:
        explicit Driver(StuckDisk& test) : test_(test) {}
        void tick(TimePoint now) override {
            if (test_.link_ != nullptr && now >= due_) {
                due_ = test_.link_->tick(now);
            }
        }
        TimePoint deadline() const override { return due_; }
        TimePoint due_ = TimePoint::max();

      private:
        StuckDisk& test_;
    };

    StuckDisk() {
        set("large", pattern(5'000'000));
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        thread_->call(
            [&] {
                link_ = std::make_shared<LocalLink>(
                    thread_, pool_, std::move(pair.other), token, "server",
                    [this](TimePoint due) { driver_.due_ = std::min(driver_.due_, due); });
                link_->begin();
                return true;
            },
            "");
        run(*link_, call_operation(Op::ping, ""));
        for (int i = 0; i < WorkerPool::kMostThreads; ++i) {
            pool_->post([this] {
                ++stuck_;
                stop_.wait(false);
            });
        }
        EXPECT_TRUE(eventually([&] { return stuck_ == WorkerPool::kMostThreads; }));
    }
    ~StuckDisk() override {
        go_on();
        EXPECT_TRUE(pool_->settle(kPatience));
        thread_->post_and_wait([&] { link_->end(ErrorKind::server_lost, "the end", false); });
        thread_->stop();
    }
    void go_on() {
        stop_ = true;
        stop_.notify_all();
    }

    Driver driver_{*this};
    std::atomic<int> stuck_ = 0;
    std::atomic<bool> stop_ = false;
    std::shared_ptr<WorkerPool> pool_ = std::make_shared<WorkerPool>();
    std::shared_ptr<EventThread> thread_ = std::make_shared<EventThread>(driver_, "test");
    std::shared_ptr<LocalLink> link_;
};

TEST_F(StuckDisk, ATimeOutComesOnceTheMemoryIsFree) {
    Bytes out(5'000'000);
    const auto operation = get_operation({{.key = "large", .memory = memory_of(out)}}, 0.1);
    link_->submit(operation);
    EXPECT_FALSE(operation->wait_for(500ms));
    go_on();
    EXPECT_EQ(error_of([&] { finish(operation); }), ErrorKind::timeout);
    EXPECT_FALSE(operation->leaked());
}

TEST_F(StuckDisk, MemoryThatIsNotFreedInTimeIsLeaked) {
    Bytes out(5'000'000);
    const auto operation = get_operation({{.key = "large", .memory = memory_of(out)}}, 60);
    link_->submit(operation);
    link_->cancel(operation);
    thread_->post_and_wait([&] { link_->abandon(); });
    EXPECT_EQ(error_of([&] { finish(operation); }), ErrorKind::cancelled);
    EXPECT_TRUE(operation->leaked());
}

TEST_F(StuckDisk, SmallValuesThatAreInMemoryDoNotWait) {
    set("small", pattern(1000));
    const auto operation = get_operation({{"small"}, {"small"}});
    link_->submit(operation);
    EXPECT_TRUE(operation->done());
    EXPECT_EQ(reply_of(*operation), pattern(1000));
}

TEST_F(StuckDisk, TheEndOfTheServerIsTold) {
    Bytes out(5'000'000);
    const auto operation = get_operation({{.key = "large", .memory = memory_of(out)}}, 60);
    link_->submit(operation);
    server.close();
    go_on();
    EXPECT_EQ(error_of([&] { finish(operation); }), ErrorKind::server_lost);
}

// ---- a server that means ill ----

TEST(BadRoot, IsNotUsed) {
    LocalClient client;
    const auto meet = [&](std::vector<int> descriptors) {
        ControlPair pair = control_pair();
        const auto link = client.attach(std::move(pair.other), new_token(), "server");
        const stream::Frame frame{stream::FrameKind::root,
                                  static_cast<std::uint32_t>(descriptors.size()), 0, 0, 0};
        iovec piece{const_cast<stream::Frame*>(&frame), sizeof(frame)};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        if (!descriptors.empty()) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
            cmsghdr* const rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
            std::memcpy(CMSG_DATA(rights), descriptors.data(), sizeof(int) * descriptors.size());
        }
        EXPECT_EQ(sendmsg(pair.one.get(), &header, MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof(frame)));
        EXPECT_TRUE(eventually([&] { return link->failed(); }));
    };
    const Fd null(open("/dev/null", O_RDWR));
    const Fd loose(memfd_create("page", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(loose.get(), 4096), 0);
    shared::SessionPage page;
    const Fd good = page.take_descriptor();
    meet({});
    meet({null.get()});
    meet({null.get(), null.get(), null.get()});
    meet({good.get(), loose.get(), null.get()});  // a page that could be cut
    meet({loose.get(), good.get(), null.get()});
}

using Wait = DirectoryRoot::Wait;

Bytes bytes_of(const Region& region) { return {region.data(), region.data() + region.size()}; }

std::size_t mappings_of(const fs::path& folder) {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find(folder.string()) != std::string::npos ? 1 : 0;
    }
    return count;
}

TEST_F(ShownFiles, FilesOfEverySizeAreMapped) {
    for (const std::size_t size : kSizes) {
        const Bytes value = pattern(size);
        set("a/key", value);
        for (const Wait wait : {Wait::never, Wait::for_disk}) {
            const auto mapped = link->map_file("a/key", wait);
            ASSERT_NE(mapped, nullptr) << size;
            EXPECT_TRUE(mapped->read_only());
            EXPECT_NE(mapped->data(), nullptr);
            EXPECT_EQ(bytes_of(*mapped), value) << size;
            EXPECT_EQ(mappings_of(root), size > 0 ? 1u : 0u);
        }
    }
    EXPECT_EQ(mappings_of(root), 0u);
    EXPECT_EQ(asked(), 0u);
    EXPECT_EQ(service.storages.shown_counts().gets_seen, 2 * std::size(kSizes));
}

TEST_F(ShownFiles, WhatIsMappedOutlivesItsKeyAndItsServer) {
    const Bytes value = pattern(3'000'000);
    set("a", value);
    const auto before = open_descriptors();
    const auto mapped = link->map_file("a", Wait::for_disk);
    EXPECT_EQ(open_descriptors(), before);
    set("a", pattern(10));
    EXPECT_EQ(bytes_of(*link->map_file("a", Wait::for_disk)), pattern(10));
    run(make_calls(Op::remove, {"a"}, 60, nullptr));
    EXPECT_EQ(link->map_file("a", Wait::for_disk), nullptr);
    set("b", pattern(10));
    server.close();
    EXPECT_EQ(link->map_file("b", Wait::for_disk), nullptr);
    EXPECT_EQ(bytes_of(*mapped), value);
}

TEST_F(ShownFiles, NobodyCanWriteToWhatIsMapped) {
    set("a", pattern(100'000));
    const auto mapped = link->map_file("a", Wait::for_disk);
    EXPECT_EQ(mprotect(mapped->data(), mapped->size(), PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
}

TEST_F(ShownFiles, OnlyValuesAreMapped) {
    set("a/b", pattern(10));
    write_file("a/.ucxstore-0123456789abcdef.partial", pattern(10));
    ASSERT_EQ(mkfifo((root / "fifo").c_str(), 0600), 0);
    write_file("../secret", pattern(10));
    fs::create_symlink("../secret", root / "link");
    for (const std::string key :
         {"none", "a", "a/b/c", "a/.ucxstore-0123456789abcdef.partial", "fifo", "link", "../secret",
          "a/../../secret", "", "/etc/passwd", ".ucxstore-cluster", "__ucxscratch__/a/b"}) {
        EXPECT_EQ(link->map_file(key, Wait::for_disk), nullptr) << key;
    }
    EXPECT_EQ(mappings_of(directory.path()), 0u);
}

TEST_F(ShownFiles, SoManyFilesAreMappedAtTheMost) {
    set("a", pattern(10));
    std::vector<std::shared_ptr<Region>> mapped;
    while (auto one = link->map_file("a", Wait::never)) {
        mapped.push_back(std::move(one));
        ASSERT_LE(mapped.size(), kMostMappedFiles);
    }
    EXPECT_EQ(mapped.size(), kMostMappedFiles);
    mapped.pop_back();
    EXPECT_NE(link->map_file("a", Wait::never), nullptr);
    mapped.clear();
    EXPECT_EQ(mappings_of(root), 0u);
}

}  // namespace
}  // namespace ucxstore::test

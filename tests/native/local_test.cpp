// The plane of one host: a server's thread and a client's, joined by a pair of Unix sockets.
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
#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

class Local : public testing::Test {
  protected:
    Local()
        : Local(std::make_shared<MemoryStorage>(std::make_shared<Quota>(1ull << 40), false,
                                                shared::Shelf::make())) {}
    explicit Local(std::shared_ptr<MemoryStorage> memory)
        : storage(std::move(memory)),
          server(Service{Storages(std::shared_ptr<Storage>(storage)), counters}, 0) {
        link = connect();
    }

    std::shared_ptr<LocalLink> connect() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        return client.attach(std::move(pair.other), token, "server");
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

    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    const std::shared_ptr<MemoryStorage> storage;
    LocalThread server;
    LocalClient client;
    std::shared_ptr<LocalLink> link;
};

TEST_F(Local, ValuesOfEverySizeComeBack) {
    for (const std::size_t size :
         {0ul, 1ul, 4096ul, 16384ul, 16385ul, 100'000ul, 2'097'152ul, 5'000'001ul, 40'000'000ul}) {
        const Bytes value = pattern(size);
        set("key", value);
        EXPECT_EQ(get("key"), value) << size;
        EXPECT_EQ(get("key"), value) << size;
    }
}

TEST_F(Local, WhatWasShownIsReadWithoutTheServer) {
    set("a", pattern(1000));
    set("b", pattern(100'000));
    EXPECT_EQ(get("a"), pattern(1000));
    const std::uint64_t asked = counters->gets;
    EXPECT_EQ(asked, 1u);
    EXPECT_EQ(get("b"), pattern(100'000));
    EXPECT_EQ(get("a"), pattern(1000));
    EXPECT_EQ(counters->gets, asked);
}

TEST_F(Local, WhatIsSeenIsCounted) {
    set("a", pattern(1000));
    for (int i = 0; i < 5; ++i) {
        get("a");
    }
    ShelfCounts counts = storage->shelf()->counts();
    EXPECT_EQ(counts.gets_seen, 5u);
    EXPECT_EQ(counts.bytes_seen, 5000u);
    EXPECT_EQ(counts.arenas, 1u);
    EXPECT_GE(counts.arena_bytes_used, 1000u);
    link->close();
    EXPECT_TRUE(eventually([&] { return server.sessions() == 0; }));
    link.reset();
    EXPECT_TRUE(eventually([&] {
        storage->shelf()->sweep();
        return storage->shelf()->counts().gets_seen == 5;
    }));
}

TEST_F(Local, AReplacedValueIsTheNewOne) {
    for (int i = 0; i < 100; ++i) {
        const Bytes value = pattern(static_cast<std::size_t>(100 + 1000 * i));
        set("key", value);
        ASSERT_EQ(get("key"), value);
    }
}

TEST_F(Local, ARemovedValueIsMissing) {
    set("key", pattern(1000));
    EXPECT_EQ(get("key"), pattern(1000));
    run(make_calls(Op::remove, {"key"}, 60, nullptr));
    EXPECT_EQ(get("key"), std::nullopt);
    EXPECT_EQ(get("other"), std::nullopt);
}

TEST_F(Local, PartsAreWhatAServerWouldSend) {
    using Kind = Range::Kind;
    const Bytes value = pattern(10'000);
    set("key", value);
    ASSERT_EQ(get("key"), value);
    const auto part = [&](std::size_t begin, std::size_t end) {
        return Bytes(value.begin() + static_cast<std::ptrdiff_t>(begin),
                     value.begin() + static_cast<std::ptrdiff_t>(end));
    };
    const auto ranges = [](std::vector<Range> some) { return Selection(some); };
    EXPECT_EQ(get("key", ranges({{Kind::range, 10, 20}})), part(10, 20));
    EXPECT_EQ(get("key", ranges({{Kind::offset, 9000, 0}})), part(9000, 10'000));
    EXPECT_EQ(get("key", ranges({{Kind::suffix, 7, 0}})), part(9993, 10'000));
    Bytes joined = part(5, 6);
    const Bytes more = part(100, 300);
    joined.insert(joined.end(), more.begin(), more.end());
    EXPECT_EQ(get("key", ranges({{Kind::range, 5, 6}, {Kind::range, 100, 300}})), joined);
    // Rows 2 and 3, columns 5 to 8 of 100 x 100 bytes.
    const std::vector<Dim> dims = {{2, 100}, {3, 1}};
    Bytes box = part(205, 208);
    const Bytes row = part(305, 308);
    box.insert(box.end(), row.begin(), row.end());
    EXPECT_EQ(get("key", Layout::strided(205, 1, dims)), box);
}

TEST_F(Local, StridedMemoryIsFilledAndSent) {
    const Bytes value = pattern(6000);
    Bytes out(20'000, std::byte{0});
    const std::vector<Dim> dims = {{60, 300}, {100, 1}};
    const Memory strided{out.data(), Layout::strided(10, 1, dims)};
    set("key", value);
    for (int i = 0; i < 2; ++i) {
        std::ranges::fill(out, std::byte{0});
        const auto operation = get_operation({{.key = "key", .memory = strided, .exact = true}});
        run(operation);
        for (std::size_t r = 0; r < 60; ++r) {
            ASSERT_EQ(0, std::memcmp(out.data() + 10 + 300 * r, value.data() + 100 * r, 100));
            ASSERT_EQ(out[10 + 300 * r + 100], std::byte{0});
        }
    }
    run(set_operation({{"again", strided}}));
    EXPECT_EQ(get("again"), value);
}

TEST_F(Local, RefusalsAreTheServersOwn) {
    set("key", pattern(1000));
    ASSERT_EQ(get("key"), pattern(1000));
    const std::uint64_t asked = counters->gets;
    Bytes small(10);
    const auto error = [&](Get one) {
        return error_of([&] { run(get_operation({std::move(one)})); });
    };
    EXPECT_EQ(error({.key = "key", .memory = memory_of(small)}), ErrorKind::value_too_large);
    EXPECT_EQ(error({.key = "key", .expected = 999}), ErrorKind::chunk_size);
    EXPECT_EQ(error({.key = "key", .selection = Layout::contiguous(10, 995)}), ErrorKind::argument);
    const auto changed = get_operation({{.key = "key", .version = 12345}});
    run(changed);
    EXPECT_EQ(changed->items[0].status, Status::changed);
    EXPECT_EQ(counters->gets, asked);
}

TEST_F(Local, AMixtureOfSeenAndUnseenIsOneOperation) {
    set("a", pattern(1000));
    ASSERT_EQ(get("a"), pattern(1000));
    const auto operation = get_operation({{"none"}, {"a"}, {"nothing"}, {"a"}});
    run(operation);
    EXPECT_EQ(operation->items[0].status, Status::missing);
    EXPECT_EQ(reply_of(*operation, 1), pattern(1000));
    EXPECT_EQ(operation->items[2].status, Status::missing);
    EXPECT_EQ(reply_of(*operation, 3), pattern(1000));
}

TEST_F(Local, SetIfAbsentKeepsWhatIsThere) {
    Bytes one = pattern(100);
    Bytes other = pattern(200);
    const auto first = set_operation({{"key", memory_of(one)}}, true);
    run(first);
    EXPECT_EQ(first->items[0].status, Status::ok);
    const auto second = set_operation({{"key", memory_of(other)}}, true);
    run(second);
    EXPECT_EQ(second->items[0].status, Status::kept);
    EXPECT_EQ(get("key"), one);
}

TEST_F(Local, ManyKeysMakeTheIndexGrow) {
    for (int i = 0; i < 5000; ++i) {
        set("key" + std::to_string(i), pattern(static_cast<std::size_t>(i)));
    }
    for (int i = 0; i < 5000; ++i) {
        ASSERT_EQ(get("key" + std::to_string(i)), pattern(static_cast<std::size_t>(i)));
    }
    EXPECT_LT(counters->gets, 20u);
}

TEST_F(Local, NothingIsSeenOnceTheServerHasEndedTheSession) {
    set("key", pattern(1000));
    ASSERT_EQ(get("key"), pattern(1000));
    server.close();
    EXPECT_EQ(error_of([&] { get("key"); }), ErrorKind::server_lost);
}

TEST_F(Local, AnOperationOnAClosedLinkFails) {
    link->close();
    EXPECT_TRUE(eventually([&] { return link->failed(); }));
    EXPECT_EQ(error_of([&] { get("key"); }), ErrorKind::server_lost);
    EXPECT_TRUE(eventually([&] { return server.sessions() == 0; }));
}

TEST_F(Local, ArenasThatAreGivenBackAreUnmapped) {
    const auto maps = [] {
        std::ifstream file("/proc/self/maps");
        std::string line;
        int count = 0;
        while (std::getline(file, line)) {
            count += line.find("ucxstore-1 ") != std::string::npos ||
                     line.find("memfd:ucxstore-1") != std::string::npos;
        }
        return count;
    };
    set("large", pattern(30'000'000));
    ASSERT_EQ(get("large"), pattern(30'000'000));
    EXPECT_GE(maps(), 2);
    run(make_calls(Op::remove, {"large"}, 60, nullptr));
    EXPECT_TRUE(eventually([&] {
        get("large");  // what is read makes the server look at what is pinned
        storage->shelf()->sweep();
        return maps() == 0;
    }));
}

std::shared_ptr<Operation> borrow(const std::string& key) {
    auto operation = get_operation({{key}});
    operation->borrows = true;
    return operation;
}

TEST_F(Local, WhatIsBorrowedStaysAsItIs) {
    set("key", pattern(3'000'000));
    ASSERT_EQ(get("key"), pattern(3'000'000));
    auto borrowed = borrow("key");
    run(borrowed);
    const auto region = borrowed->items[0].owned;
    ASSERT_TRUE(region->read_only());
    const auto is_as_it_was = [&] {
        return Bytes(region->data(), region->data() + region->size()) == pattern(3'000'000);
    };
    for (int i = 0; i < 40; ++i) {
        set("key", Bytes(3'000'000, static_cast<std::byte>(i)));
    }
    EXPECT_TRUE(is_as_it_was());
    // Nor does the end of the session change it, on either side.
    link->close();
    EXPECT_TRUE(eventually([&] { return server.sessions() == 0; }));
    const auto other = connect();
    for (int i = 0; i < 40; ++i) {
        Bytes value(3'000'000, static_cast<std::byte>(i));
        run(*other, set_operation({{"key", memory_of(value)}}));
    }
    EXPECT_TRUE(is_as_it_was());
    server.close();
    EXPECT_TRUE(is_as_it_was());
}

TEST_F(Local, WhatIsBorrowedIsFreedOnceItIsGivenBack) {
    const auto waiting = [&] {
        storage->shelf()->sweep();
        return storage->shelf()->counts().arena_bytes_waiting;
    };
    set("key", pattern(3'000'000));
    ASSERT_EQ(get("key"), pattern(3'000'000));
    auto borrowed = borrow("key");
    run(borrowed);
    run(make_calls(Op::remove, {"key"}, 60, nullptr));
    EXPECT_TRUE(eventually([&] { return waiting() > 0; }));
    borrowed.reset();
    EXPECT_EQ(waiting(), 0u);
}

// What one value has is one version of it, whoever reads it while it is replaced.
TEST_F(Local, NoTornValueIsRead) {
    static constexpr std::size_t kSizes[] = {64, 3000, 70'000, 600'000};
    std::atomic<bool> stop = false;
    const auto value_of = [](unsigned round) {
        return Bytes(kSizes[round % 4], static_cast<std::byte>(round));
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
                torn += std::ranges::any_of(value, [&](auto b) { return b != value[0]; });
            }
        });
    }
    for (unsigned round = 1; round < 1500; ++round) {
        set("key", value_of(round));
    }
    stop = true;
    for (auto& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(torn, 0u);
    EXPECT_GT(reads, 10u);
}

// Values of a storage without a shelf: large ones come in many pieces over the socket.
class Unseen : public Local {
  protected:
    Unseen() : Local(std::make_shared<MemoryStorage>()) {}
};

TEST_F(Unseen, ValuesComeOverTheSocket) {
    for (const std::size_t size : {0ul, 1ul, 70'000ul, 20'000'000ul}) {
        set("key", pattern(size));
        EXPECT_EQ(get("key"), pattern(size)) << size;
    }
    Bytes out(20'000'000);
    const auto operation = get_operation({{.key = "key", .memory = memory_of(out)}});
    run(operation);
    EXPECT_EQ(out, pattern(20'000'000));
}

TEST_F(Unseen, ACancelledReadLetsGoOfItsMemoryAtOnce) {
    set("key", pattern(30'000'000));
    for (int i = 0; i < 50; ++i) {
        auto out = std::make_unique<Bytes>(30'000'000);
        const auto operation = get_operation({{.key = "key", .memory = memory_of(*out)}});
        link->submit(operation);
        std::this_thread::sleep_for(std::chrono::microseconds(97 * i));
        link->cancel(operation);
        ASSERT_TRUE(operation->wait_for(kPatience));
        out.reset();
    }
    EXPECT_EQ(get("key"), pattern(30'000'000));
}

// ---- a client that means ill ----

class BadLocal : public Local {
  protected:
    BadLocal() {
        ControlPair pair = control_pair();
        server.attach(std::move(pair.one), token_, "bad client");
        socket_ = std::move(pair.other);
        set("good", pattern(100));
    }
    void write(const std::string& bytes) {
        ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    std::string message(stream::FrameKind kind, const std::string& header,
                        const std::string& body = {}) {
        const stream::Frame frame{kind, 0, static_cast<std::uint32_t>(header.size()), 0,
                                  body.size()};
        return raw(frame) + header + body;
    }
    std::string value(std::uint64_t total, std::uint64_t length, std::uint64_t place) {
        return raw(local::LocalValueHeader{
            {token_, 1, 0, 0, total, local::kUploadSegmentBytes, 0, length}, place});
    }
    void pass(int descriptor) {
        const stream::Frame frame{stream::FrameKind::upload, 1, 0, 0, 0};
        iovec piece{const_cast<stream::Frame*>(&frame), sizeof(frame)};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
        ASSERT_EQ(sendmsg(socket_.get(), &header, MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof(frame)));
    }
    void expect_thrown_out() {
        EXPECT_TRUE(eventually([&] { return server.sessions() == 1; }));
        EXPECT_EQ(get("good"), pattern(100));
        EXPECT_EQ(get("evil"), std::nullopt);
    }

    const Token token_ = new_token();
    Fd socket_;
};

TEST_F(BadLocal, SendsNoMessage) {
    write(std::string(100, 'x'));
    expect_thrown_out();
}

TEST_F(BadLocal, SendsMoreThanARequest) {
    write(message(stream::FrameKind::request, raw(RequestHeader{token_, 1, Op::get, 0, 1, 0}),
                  std::string(kMaxRequestBytes + 1, 'x'))
              .substr(0, 1000));
    expect_thrown_out();
}

TEST_F(BadLocal, SendsHalfAHeader) {
    write(message(stream::FrameKind::value, "abc"));
    expect_thrown_out();
}

TEST_F(BadLocal, SendsWhatOnlyAServerSends) {
    write(message(stream::FrameKind::index, ""));
    expect_thrown_out();
}

TEST_F(BadLocal, PromisesADescriptorThatDoesNotCome) {
    const stream::Frame frame{stream::FrameKind::upload, 1, 0, 0, 0};
    write(raw(frame));
    expect_thrown_out();
}

TEST_F(BadLocal, SendsAValueWithoutAnUpload) {
    write(message(stream::FrameKind::value, value(100'000, 100'000, 0) + "evil"));
    expect_thrown_out();
}

TEST_F(BadLocal, SendsAValueOutsideOfItsUpload) {
    const Fd file(memfd_create("upload", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    pass(file.get());
    write(message(stream::FrameKind::value, value(100'000, 100'000, (1 << 20) - 1000) + "evil"));
    expect_thrown_out();
}

TEST_F(BadLocal, OffersAnUploadThatItCouldCut) {
    const Fd file(memfd_create("upload", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
    pass(file.get());
    expect_thrown_out();
}

// To read holes of a mapping would fill them, with memory that counts as the server's.
TEST_F(BadLocal, OffersAnUploadOfHoles) {
    constexpr std::uint64_t kSize = 8 << 20;
    const Fd file(memfd_create("upload", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), kSize), 0);
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ASSERT_EQ(pwrite(file.get(), "seen", 4, (2 << 20) + 100), 4);
    pass(file.get());
    for (std::uint64_t offset = 0; offset < kSize; offset += local::kUploadSegmentBytes) {
        write(
            message(stream::FrameKind::value,
                    raw(local::LocalValueHeader{{token_, 1, 0, 0, kSize, local::kUploadSegmentBytes,
                                                 offset, local::kUploadSegmentBytes},
                                                offset}) +
                        "holes"));
    }
    ASSERT_TRUE(eventually([&] { return get("holes") != std::nullopt; }));
    std::vector<std::byte> expected(kSize);
    std::memcpy(expected.data() + (2 << 20) + 100, "seen", 4);
    EXPECT_EQ(get("holes"), expected);
    struct stat status{};
    ASSERT_EQ(fstat(file.get(), &status), 0);
    EXPECT_EQ(status.st_blocks * 512, 4096);
}

TEST_F(BadLocal, OffersAnUploadThatIsTooLarge) {
    const Fd file(memfd_create("upload", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), local::kMaxUploadBytes + 4096), 0);
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    pass(file.get());
    expect_thrown_out();
}

// Its holes raise SIGBUS where no huge page is left.
TEST_F(BadLocal, OffersReservedHugePages) {
    const Fd file(memfd_create("upload", MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!file || ftruncate(file.get(), 2 << 20) != 0) {
        GTEST_SKIP() << "no file of huge pages can be made";
    }
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    pass(file.get());
    expect_thrown_out();
}

TEST_F(BadLocal, OffersWhatIsNoMemory) {
    const Fd file(open("/dev/null", O_RDWR));
    pass(file.get());
    expect_thrown_out();
}

TEST_F(BadLocal, GoesAwayInTheMiddleOfAValue) {
    write(message(stream::FrameKind::value, value(10'000, 10'000, local::kInBody) + "evil",
                  std::string(10'000, 'x'))
              .substr(0, 5000));
    socket_.reset();
    expect_thrown_out();
}

}  // namespace
}  // namespace ucxstore::test
